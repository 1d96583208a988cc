#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/nodes/arrivals.h"
#include "unisono/launch/nodes/late_ranks.h"
#include "unisono/launch/nodes/messages.h"
#include "unisono/launch/restart_policy.h"

namespace unisono::launch::nodes {

/// Which nodes run which generation of a job: takes what they say, and decides when a generation
/// starts, who is in it, when it is stopped, whether another one follows, and how the job ends. No
/// I/O and no clock of its own.
///
/// The coordinator's own node is one like the others; nothing starts without it, and it is node 0.
/// A generation is stopped when a rank of it fails, or others have waited for it for too long; when
/// one of its nodes is lost; and when there is a new node for a job that has fewer than max_nodes.
/// All but the last use up a restart.
class NodeRendezvous {
 public:
  using Time = Deadline::Clock::time_point;
  using NodeId = std::uint64_t;

  struct Order {
    NodeId node;
    Message message;
  };

  NodeRendezvous(const RendezvousOptions& options, Time now);

  /// Takes what a node says that is connected.
  void take(NodeId node, const Message& message, Time now);

  /// The node is gone, or as good as gone.
  void lose(NodeId node, const std::string& why, Time now);

  /// To be called when next_due() has come.
  void on_time(Time now);

  [[nodiscard]] Time next_due() const;

  /// Ends the job, whatever its nodes do.
  void end(int exit_code, const std::string& report);

  /// What is to be sent, in this order.
  [[nodiscard]] std::vector<Order> take_orders();

  [[nodiscard]] bool is_over() const { return phase_ == Phase::kOver; }

 private:
  enum class Phase { kGathering, kRunning, kStopping, kPausing, kOver };

  struct Node {
    Join join;
    std::uint64_t order;      // In which the nodes came.
    int rank = -1;            // In the present generation, or the last one; -1: in none.
    int first_rank = 0;       // Of its ranks, in that generation.
    bool is_in = false;       // Of the present generation.
    bool is_running = false;  // And not over yet.
    std::string report = {};  // About its first failure in it.

    [[nodiscard]] bool has_rank(int job_rank) const {
      return job_rank >= first_rank && job_rank - first_rank < join.n_workers;
    }
  };

  // Why a generation was stopped.
  struct Failure {
    NodeId node;
    int exit_code;
    std::string what;
    bool is_by_signal = false;
  };

  void take_from(NodeId node, const Join& message, Time now);
  void take_from(NodeId node, const Failed& message, Time now);
  void take_from(NodeId node, const Over& message, Time now);
  void take_from(NodeId node, const Leave& message, Time now);
  void take_from(NodeId node, const Waits& message, Time now);

  void gather(Time now);
  void begin_gathering(Time now);
  void start(Time now);
  void fail(Failure failure, Time now);
  void stop(const std::string& why, NodeId except, bool is_by_signal = false);
  void take_in_newcomer();
  void give_late_rank_up(Time now);
  void end_generation(Time now);
  void restart_after(const Failure& failure, Time now);
  void report_missing(Time now);
  void invite_back(const Join& left);

  [[nodiscard]] bool has_coordinator() const;
  [[nodiscard]] bool is_nobody_running() const;
  [[nodiscard]] int n_here() const;
  [[nodiscard]] std::vector<NodeId> chosen() const;
  [[nodiscard]] std::vector<Join> joins() const;
  [[nodiscard]] std::string report(const Failure& failure) const;
  void notify(const std::string& text);
  void tell_all(const Message& message);

  RendezvousOptions options_;
  RestartPolicy restarts_;
  Phase phase_ = Phase::kGathering;
  std::map<NodeId, Node> nodes_;
  std::uint64_t n_joined_ = 0;
  std::uint64_t generation_ = 0;
  Time gathering_since_{};
  std::optional<Time> enough_since_;
  std::chrono::milliseconds report_after_{};
  Time started_{};
  Time pause_end_{};
  std::optional<Failure> failure_;        // Of the present generation.
  std::vector<std::string> also_failed_;  // Because of it, or beside it.
  std::vector<std::string> past_failures_;
  LateRanks late_ranks_;
  std::vector<Order> orders_;
};

}  // namespace unisono::launch::nodes
