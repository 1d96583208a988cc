#include "unisono/launch/nodes/arrivals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>

namespace unisono::launch::nodes {
namespace {

std::string describe_count(int min_nodes, int max_nodes) {
  return min_nodes == max_nodes ? fmt::format("{}", max_nodes)
                                : fmt::format("{}:{}", min_nodes, max_nodes);
}

// Returns the value in the form of --stall-timeout.
std::string describe_stall(std::int64_t stall_ms) {
  return stall_ms == 0 ? "not given" : fmt::format("{}", static_cast<double>(stall_ms) / 1000);
}

}  // namespace

std::string describe(const Join& join) {
  return fmt::format("{} (pid {})", join.host, join.pid);
}

std::string refusal(const RendezvousOptions& options,
                    const std::vector<Join>& here,
                    const Join& join) {
  if (!join.run_id.empty() && join.run_id != options.run_id) {
    return fmt::format(
        "the job here is \"{}\", and --rdzv-id is \"{}\"", options.run_id, join.run_id);
  }
  if (join.min_nodes != options.min_nodes || join.max_nodes != options.max_nodes) {
    return fmt::format("--nnodes is {} there and {} here",
                       describe_count(options.min_nodes, options.max_nodes),
                       describe_count(join.min_nodes, join.max_nodes));
  }
  if (join.stall_ms != options.stall_timeout.count()) {
    return fmt::format("--stall-timeout is {} there and {} here",
                       describe_stall(options.stall_timeout.count()),
                       describe_stall(join.stall_ms));
  }
  if (join.wanted_rank >= options.max_nodes || join.wanted_rank < -1 || join.n_workers < 1) {
    return fmt::format("node rank {} is not below {}", join.wanted_rank, options.max_nodes);
  }
  for (const Join& other : here) {
    if ((join.wanted_rank < 0) != (other.wanted_rank < 0)) {
      return fmt::format("some nodes have --node-rank and some have not: {} has {}",
                         describe(other),
                         other.wanted_rank < 0 ? "none" : "one");
    }
    if (join.wanted_rank >= 0 && join.wanted_rank == other.wanted_rank) {
      return fmt::format("node rank {} is taken by {}", join.wanted_rank, describe(other));
    }
  }
  if (static_cast<int>(here.size()) - options.max_nodes >= options.max_spares) {
    return fmt::format("the job has its {} nodes and as many spare ones as --spares allows",
                       options.max_nodes);
  }
  return "";
}

std::string describe_missing(const RendezvousOptions& options, const std::vector<Join>& here) {
  std::vector<std::string> names;
  std::vector<bool> is_here(static_cast<std::size_t>(options.max_nodes));
  bool are_ranks_wanted = false;
  for (const Join& node : here) {
    names.push_back(describe(node));
    if (node.wanted_rank >= 0) {
      are_ranks_wanted = true;
      is_here[static_cast<std::size_t>(node.wanted_rank)] = true;
    }
  }
  std::string text =
      fmt::format("{} of {} are here: {}", here.size(), options.min_nodes, fmt::join(names, ", "));
  if (!are_ranks_wanted) {
    return text;
  }
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < is_here.size(); ++i) {
    if (!is_here[i]) {
      missing.push_back(fmt::format("{}", i));
    }
  }
  return text + fmt::format("; missing: node rank {}", fmt::join(missing, ", "));
}

}  // namespace unisono::launch::nodes
