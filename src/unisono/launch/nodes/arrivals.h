#pragma once

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "unisono/launch/messages.h"

namespace unisono::launch::nodes {

/// Settings of the rendezvous of a job's nodes.
struct RendezvousOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  /// Largest number of waiting nodes beyond max_nodes.
  int max_spares = std::numeric_limits<int>::max();
  std::string run_id = {};
  /// A rank that other ranks have waited for during this time counts as failed; 0: no limit.
  std::chrono::milliseconds stall_timeout{};
  /// A front launcher has started all nodes, shows their output, and restarts lost nodes. Only the
  /// coordinator's node receives notices then.
  bool has_front = false;
  /// Time to wait while fewer than min_nodes are present.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  /// Time to wait for more nodes once min_nodes are present.
  std::chrono::milliseconds last_call = std::chrono::seconds(30);
  /// Time after which the present nodes receive the first notice about missing nodes. Each further
  /// notice takes twice as long.
  std::chrono::milliseconds report_after = std::chrono::seconds(5);
};

/// Returns "host (pid 7)".
[[nodiscard]] std::string describe(const Join& join);

/// Returns the reason for which a node cannot join the nodes in `here`; empty if the node can join.
[[nodiscard]] std::string refusal(const RendezvousOptions& options,
                                  const std::vector<Join>& here,
                                  const Join& join);

/// Returns a text with the number and the names of the present nodes, and the missing node ranks if
/// nodes have chosen ranks.
[[nodiscard]] std::string describe_missing(const RendezvousOptions& options,
                                           const std::vector<Join>& here);

}  // namespace unisono::launch::nodes
