#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/nodes/coordinator.h"
#include "unisono/launch/nodes/messages.h"
#include "unisono/launch/nodes/node_member.h"
#include "unisono/launch/worker_group.h"

namespace unisono::launch::nodes {

/// The generations of a node of a job of several, as the coordinator has them.
class NodeGenerations final : public Generations {
 public:
  /// `coordinator` is the one of the job, where it is at this node; else null. `job` holds what is
  /// the same for all generations. Where one launcher in front has started all nodes (`has_front`),
  /// signals to this node reach the others, too, and their ranks may end as they want.
  NodeGenerations(std::unique_ptr<Coordinator> coordinator,
                  std::unique_ptr<NodeMember> member,
                  const JobLayout& job,
                  bool has_front);

  [[nodiscard]] std::optional<JobLayout> next(const Waiting& waiting) override;
  void watch(WorkerGroup& group, const Waiting& waiting) override;
  void take_end(const GroupEnd& end) override;

  [[nodiscard]] std::optional<Outcome> outcome() const override { return outcome_; }

 private:
  void end(int exit_code, const std::string& report);
  void stop(WorkerGroup& group, const std::string& why);
  void tell_end(const WorkerGroup& group);
  void tell_waits(WorkerGroup& group);
  void tell_others(const Cause& cause, const WorkerGroup& group);
  void tell_failure(int exit_code, const std::string& what);
  void leave(const Leave& message);
  [[nodiscard]] JobLayout layout(const Start& order) const;
  void wait_for_others(const Waiting& waiting);

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<NodeMember> member_;
  JobLayout job_;
  bool has_front_;
  std::uint64_t generation_ = 0;
  bool is_stopped_ = false;  // The present generation, or its failure is told.
  bool has_left_ = false;
  std::optional<Outcome> outcome_;
};

}  // namespace unisono::launch::nodes
