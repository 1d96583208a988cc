#pragma once

#include <span>
#include <string>
#include <vector>

namespace unisono::launch {

/// Where a rank runs.
struct RankBinding {
  int rank = 0;
  std::vector<int> cores;  ///< Processors by the kernel's numbers, sorted.
};

/// Of a node's ranks.
struct BindingReport {
  std::string host;
  std::vector<RankBinding> ranks;
  std::string threads;  ///< "OMP_NUM_THREADS=4 (set by the launcher)".
};

/// A line for each rank: host, cores, NUMA node, threads. Loads libhwloc; where it is not there the
/// lines lack the node, and another one says why.
[[nodiscard]] std::string report_bindings(const BindingReport& report);

}  // namespace unisono::launch
