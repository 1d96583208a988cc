#pragma once

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include "unisono/launch/nodes/messages.h"

namespace unisono::launch::nodes {

/// What the job's nodes are to be.
struct RendezvousOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  int max_restarts = 0;
  int max_spares = std::numeric_limits<int>::max();  ///< Nodes beyond max_nodes that may wait.
  std::string run_id = {};
  /// A rank that others have waited for so long counts as failed; 0: none does.
  std::chrono::milliseconds stall_timeout{};
  /// One launcher in front has started all nodes, shows the output of all, and starts lost nodes
  /// again. Then the coordinator's node alone is notified.
  bool has_front = false;
  /// How long fewer than min_nodes are waited for.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(10);
  /// How long more are waited for once there are min_nodes.
  std::chrono::milliseconds last_call = std::chrono::seconds(30);
  /// When the nodes that are here hear who is missing; then after twice that, and so on.
  std::chrono::milliseconds report_after = std::chrono::seconds(5);
};

/// "host (pid 7)".
[[nodiscard]] std::string describe(const Join& join);

/// Why a node can't join those that are here; empty where it can.
[[nodiscard]] std::string refusal(const RendezvousOptions& options,
                                  const std::vector<Join>& here,
                                  const Join& join);

/// How many nodes are here, which, and which ranks are missing where nodes have ranks of their own.
[[nodiscard]] std::string describe_missing(const RendezvousOptions& options,
                                           const std::vector<Join>& here);

}  // namespace unisono::launch::nodes
