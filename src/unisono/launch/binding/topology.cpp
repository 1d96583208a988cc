#include "unisono/launch/binding/topology.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace unisono::launch {

Topology restrict_to(const Topology& topology, std::span<const int> processors) {
  const std::set<int> allowed(processors.begin(), processors.end());
  Topology result;
  for (Core core : topology.cores) {
    std::erase_if(core.processors, [&](int processor) { return !allowed.contains(processor); });
    if (!core.processors.empty()) {
      result.cores.push_back(std::move(core));
    }
  }
  return result;
}

std::vector<int> numa_nodes_of(const Topology& topology, std::span<const int> processors) {
  std::set<int> nodes;
  for (const Core& core : restrict_to(topology, processors).cores) {
    nodes.insert(core.numa_node);
  }
  return {nodes.begin(), nodes.end()};
}

}  // namespace unisono::launch
