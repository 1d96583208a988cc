#pragma once

#include <span>
#include <vector>

namespace unisono::launch {

struct Core {
  std::vector<int> processors;  ///< Its hardware threads, by the kernel's numbers, sorted.
  int numa_node = 0;            ///< By the kernel's number.
  int socket = 0;
};

/// The cores of a machine. Those that are close to each other, sharing a NUMA node, a socket or a
/// cache, stand together.
struct Topology {
  std::vector<Core> cores;
};

/// What is left of it when only these processors may be used.
[[nodiscard]] Topology restrict_to(const Topology& topology, std::span<const int> processors);

/// The NUMA nodes that these processors belong to, sorted; none of those that are not there.
[[nodiscard]] std::vector<int> numa_nodes_of(const Topology& topology,
                                             std::span<const int> processors);

}  // namespace unisono::launch
