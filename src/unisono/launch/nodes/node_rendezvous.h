#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/messages.h"
#include "unisono/launch/nodes/arrivals.h"
#include "unisono/launch/stall_watch.h"

namespace unisono::launch::nodes {

/// State machine of a job's rendezvous: takes the messages of the nodes, and decides when a
/// generation starts, which nodes take part, when the generation is stopped, whether another
/// generation follows, and how the job ends.
///
/// - The coordinator's own node is node 0. No generation starts without this node.
/// - A failed rank, a late rank, or a lost node stops the generation and uses up a restart.
/// - A new node stops the generation as well if the job has fewer than max_nodes, but does not use
///   up a restart.
///
/// The Coordinator owns the object. The class does no I/O and has no clock: the caller passes the
/// time and sends the orders. Not thread-safe.
class NodeRendezvous {
 public:
  using Time = Deadline::Clock::time_point;
  using NodeId = std::uint64_t;

  /// A message to a node.
  struct Order {
    NodeId node;
    Message message;
  };

  NodeRendezvous(const RendezvousOptions& options, Time now);

  /// Takes a message from a connected node.
  void take(NodeId node, const Message& message, Time now);

  /// Removes a node after the loss of its connection.
  void lose(NodeId node, const std::string& why, Time now);

  /// Called when next_due() has passed.
  void on_time(Time now);

  [[nodiscard]] Time next_due() const;

  /// Ends the job, regardless of the state of the nodes.
  void end(int exit_code, const std::string& report);

  /// Returns the messages to send, in order.
  [[nodiscard]] std::vector<Order> take_orders();

  [[nodiscard]] bool is_over() const { return phase_ == Phase::kOver; }

 private:
  enum class Phase { kGathering, kRunning, kStopping, kPausing, kOver };

  struct Node {
    Join join;
    std::uint64_t order;      // Order of joining.
    int rank = -1;            // Node rank in the present or last generation; -1: not a member.
    int first_rank = 0;       // First rank of the node in that generation.
    bool is_in = false;       // Belongs to the present generation.
    bool is_running = false;  // The generation is not over on the node.
    std::string report = {};  // Report about the node's first failure in that generation.

    [[nodiscard]] bool has_rank(int job_rank) const {
      return job_rank >= first_rank && job_rank - first_rank < join.n_workers;
    }
  };

  // Reason for which a generation was stopped.
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

  /// Starts a generation if enough nodes are present, otherwise reports missing nodes.
  void gather(Time now);
  void begin_gathering(Time now);
  void start(Time now);
  /// Records a failure; the first failure of a generation stops it.
  void fail(Failure failure, Time now);
  /// Orders all running nodes except `except` to end their ranks.
  void stop(const std::string& why, NodeId except, bool is_by_signal = false);
  void take_in_newcomer();
  void give_late_rank_up(Time now);
  /// Called after the last rank: ends the job, restarts it, or gathers nodes again.
  void end_generation(Time now);
  void restart_after(const Failure& failure, Time now);
  void report_missing(Time now);
  void invite_back(const Join& left);

  [[nodiscard]] bool has_coordinator() const;
  [[nodiscard]] bool is_nobody_running() const;
  [[nodiscard]] int n_here() const;
  /// Returns the nodes of the next generation in the order of their node ranks: the coordinator's
  /// node first, then by requested or last rank, then by the order of joining.
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
  std::optional<Failure> failure_;        // Belongs to the present generation.
  std::vector<std::string> also_failed_;  // Consequences of failure_, or failures at the same time.
  std::vector<std::string> past_failures_;
  LateRanks late_ranks_;
  std::vector<Order> orders_;
};

}  // namespace unisono::launch::nodes
