#include "unisono/launch/binding/report_bindings.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/launch/binding/read_topology.h"
#include "unisono/launch/binding/topology.h"
#include "unisono/launch/rank_ranges.h"

namespace unisono::launch {
namespace {

std::string named(const char* name, const std::vector<int>& numbers) {
  return fmt::format("{}{} {}", name, numbers.size() == 1 ? "" : "s", rank_ranges(numbers));
}

}  // namespace

std::string report_bindings(const BindingReport& report) {
  Topology topology;
  std::string problem;
  try {
    topology = read_topology();
  } catch (const Error& error) {
    problem = fmt::format("\nits NUMA nodes are not known: {}", error.what());
  }
  std::string text;
  for (const RankBinding& rank : report.ranks) {
    const std::vector<int> nodes = numa_nodes_of(topology, rank.cores);
    text += fmt::format("{}rank {} on {}: {}{}, {}",
                        text.empty() ? "" : "\n",
                        rank.rank,
                        report.host,
                        named("core", rank.cores),
                        nodes.empty() ? "" : ", " + named("NUMA node", nodes),
                        report.threads);
  }
  return text + problem;
}

}  // namespace unisono::launch
