#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/restart_policy.h"
#include "unisono/net/event_loop.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {

/// The generations of a job of one node, whose store it serves, one for each.
class LocalGenerations final : public Generations {
 public:
  /// Serves the first store, as `store` has it; the ranks are told the port that it got.
  LocalGenerations(net::EventLoop& loop,
                   const JobLayout& job,
                   const store::TcpServerOptions& store);

  [[nodiscard]] std::optional<JobLayout> next(const Waiting& waiting) override;
  void watch(WorkerGroup& group, const Waiting& waiting) override;
  void take_end(const GroupEnd& end) override;
  [[nodiscard]] std::optional<Outcome> outcome() const override;

 private:
  [[nodiscard]] bool prepare_restart(const GroupEnd& last, const Waiting& waiting);

  net::EventLoop& loop_;
  JobLayout job_;
  store::TcpServerOptions store_options_;
  std::unique_ptr<store::TcpStoreServer> store_;  // Of the present generation.
  RestartPolicy restarts_;
  std::vector<std::string> failures_;  // Of each generation that another one followed.
  std::optional<GroupEnd> last_;
  std::optional<Outcome> outcome_;
};

}  // namespace unisono::launch
