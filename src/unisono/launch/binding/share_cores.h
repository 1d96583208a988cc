#pragma once

#include <vector>

#include "unisono/launch/binding/bind_to.h"
#include "unisono/launch/binding/topology.h"

namespace unisono::launch {

struct CoreShares {
  std::vector<std::vector<int>> processors;  ///< Of each local rank, sorted.
  int n_threads = 1;  ///< For each rank: all together are no more than cores, unless ranks are.
};

/// Divides the cores between the ranks of a node: each gets a stretch of neighbours.
///
/// - A stretch is of whole cores, with all their hardware threads, where there are as many as
///   ranks; else of hardware threads; where those are too few as well, about as many ranks share
///   each.
/// - It is within one NUMA node, unless there are more nodes than ranks: then it is of whole nodes.
/// - The smallest stretch is as large as these rules allow, and sets the number of threads of all.
///
/// `topology` has a core, and there is a rank. The same arguments give the same shares.
///
/// Source for how many ranks a NUMA node gets: D'Hondt's method, which makes the smallest share of
/// a rank as large as can be.
[[nodiscard]] CoreShares share_cores(const Topology& topology, int n_ranks, BindTo bind_to);

}  // namespace unisono::launch
