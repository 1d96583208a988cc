#pragma once

#include <span>
#include <string>
#include <vector>

namespace unisono::launch {

/// A physical core with the hardware threads that this process may use.
struct Core {
  std::vector<int> processors;  ///< Hardware threads, by the kernel's numbers, sorted.
  int numa_node = 0;            ///< By the kernel's number.
  int socket = 0;
};

/// Cores of a machine, ordered by socket, NUMA node and last-level cache, so that neighbours in the
/// list are close to each other.
struct CoreTopology {
  std::vector<Core> cores;
};

/// Returns the cores of `processors`, as the kernel's files below `sysfs` describe them. Hardware
/// threads outside `processors` are left out.
///
/// A missing or malformed value counts as 0; a processor without a description is a core of its
/// own. Containers without these files therefore get equal cores of a single NUMA node.
[[nodiscard]] CoreTopology read_topology(std::span<const int> processors,
                                         const std::string& sysfs = "/sys/devices/system");

/// Returns the part of `topology` that is made of `processors`.
[[nodiscard]] CoreTopology restrict_to(const CoreTopology& topology,
                                       std::span<const int> processors);

/// Returns the NUMA nodes of `processors`, sorted. Processors outside `topology` are ignored.
[[nodiscard]] std::vector<int> numa_nodes_of(const CoreTopology& topology,
                                             std::span<const int> processors);

/// The processors that a rank is bound to.
enum class BindTo {
  kNone,
  kCore,    ///< The rank's own cores.
  kNuma,    ///< All cores of the NUMA nodes of the rank's own cores.
  kSocket,  ///< All cores of the sockets of the rank's own cores.
};

/// The division of a node's cores between its ranks.
struct CoreShares {
  std::vector<std::vector<int>> processors;  ///< A sorted list for each local rank.
  int n_threads = 1;  ///< Threads of each rank; with all ranks, one per core at most.
};

/// Divides the cores between the ranks of a node: each rank gets a stretch of neighbouring cores.
///
/// - If there are at least as many cores as ranks, a stretch has whole cores with all hardware
///   threads. Otherwise a stretch has hardware threads; if there are too few hardware threads as
///   well, ranks share them evenly.
/// - A stretch lies within a single NUMA node, unless there are more nodes than ranks: then a
///   stretch has whole nodes.
/// - The smallest stretch is as large as these rules allow, and sets the number of threads of all
///   ranks.
///
/// Requires at least one core and one rank. The function is deterministic.
///
/// Source: D'Hondt's method distributes the ranks over the NUMA nodes, which makes the smallest
/// share as large as possible.
[[nodiscard]] CoreShares share_cores(const CoreTopology& topology, int n_ranks, BindTo bind_to);

}  // namespace unisono::launch
