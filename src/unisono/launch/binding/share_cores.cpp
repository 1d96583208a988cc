#include "unisono/launch/binding/share_cores.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/launch/binding/bind_to.h"
#include "unisono/launch/binding/topology.h"

namespace unisono::launch {
namespace {

using Cores = std::vector<Core>;

// Neighbours in a list of cores.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
};

std::vector<Stretch> numa_nodes(const Cores& cores) {
  std::vector<Stretch> nodes;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    if (i == 0 || cores[i].numa_node != cores[i - 1].numa_node) {
      nodes.push_back({i, i});
    }
    nodes.back().end = i + 1;
  }
  return nodes;
}

// Part `i` of `n` equal ones, up to one core.
Stretch part_of(const Stretch& whole, std::size_t i, std::size_t n) {
  return {whole.begin + (whole.size() * i / n), whole.begin + (whole.size() * (i + 1) / n)};
}

// Stretches of whole nodes, none but the last larger than it takes to have `least` cores.
std::vector<Stretch> join_nodes(std::span<const Stretch> nodes,
                                std::size_t n_ranks,
                                std::size_t least) {
  std::vector<Stretch> stretches{{0, 0}};
  for (const Stretch& node : nodes) {
    if (stretches.back().size() >= least && stretches.size() < n_ranks) {
      stretches.push_back({node.begin, node.begin});
    }
    stretches.back().end = node.end;
  }
  return stretches;
}

std::vector<Stretch> whole_nodes(std::span<const Stretch> nodes, std::size_t n_ranks) {
  for (std::size_t least = nodes.back().end / n_ranks;; --least) {
    std::vector<Stretch> stretches = join_nodes(nodes, n_ranks, least);
    if (stretches.size() == n_ranks && stretches.back().size() >= least) {
      return stretches;
    }
  }
}

// Whether one more rank would have more cores there than here; where it is the same, whether that
// node has fewer ranks yet.
bool is_better(const Stretch& there, std::size_t n_there, const Stretch& here, std::size_t n_here) {
  const std::size_t share_there = there.size() * (n_here + 1);
  const std::size_t share_here = here.size() * (n_there + 1);
  return share_there > share_here || (share_there == share_here && n_there < n_here);
}

std::vector<Stretch> parts_of_nodes(std::span<const Stretch> nodes, std::size_t n_ranks) {
  std::vector<std::size_t> n_ranks_of(nodes.size());
  for (std::size_t rank = 0; rank < n_ranks; ++rank) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < nodes.size(); ++i) {
      if (is_better(nodes[i], n_ranks_of[i], nodes[best], n_ranks_of[best])) {
        best = i;
      }
    }
    ++n_ranks_of[best];
  }
  std::vector<Stretch> stretches;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (std::size_t part = 0; part < n_ranks_of[i]; ++part) {
      stretches.push_back(part_of(nodes[i], part, n_ranks_of[i]));
    }
  }
  return stretches;
}

// One of each rank.
std::vector<Stretch> divide(const Cores& cores, std::size_t n_ranks) {
  if (n_ranks > cores.size()) {
    std::vector<Stretch> stretches;
    for (std::size_t rank = 0; rank < n_ranks; ++rank) {
      const std::size_t core = rank * cores.size() / n_ranks;
      stretches.push_back({core, core + 1});
    }
    return stretches;
  }
  const std::vector<Stretch> nodes = numa_nodes(cores);
  return n_ranks < nodes.size() ? whole_nodes(nodes, n_ranks) : parts_of_nodes(nodes, n_ranks);
}

// Each hardware thread as a core of its own.
Cores split_cores(const Cores& cores) {
  Cores result;
  for (const Core& core : cores) {
    for (const int processor : core.processors) {
      result.push_back({{processor}, core.numa_node, core.socket});
    }
  }
  return result;
}

bool is_shared(const Core& core, std::span<const Core> own, BindTo bind_to) {
  return std::ranges::any_of(own, [&](const Core& each) {
    return bind_to == BindTo::kNuma ? core.numa_node == each.numa_node : core.socket == each.socket;
  });
}

std::vector<int> processors_of(const Cores& cores, const Stretch& stretch, BindTo bind_to) {
  const auto own = std::span(cores).subspan(stretch.begin, stretch.size());
  std::set<int> processors;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    const bool is_own = i >= stretch.begin && i < stretch.end;
    if (is_own || (bind_to != BindTo::kCore && is_shared(cores[i], own, bind_to))) {
      processors.insert(cores[i].processors.begin(), cores[i].processors.end());
    }
  }
  return {processors.begin(), processors.end()};
}

}  // namespace

CoreShares share_cores(const Topology& topology, int n_ranks, BindTo bind_to) {
  UNISONO_CHECK(!topology.cores.empty() && n_ranks > 0, "cores and ranks to share them");
  const auto n = static_cast<std::size_t>(n_ranks);
  const bool has_cores = n <= topology.cores.size();
  const Cores cores = has_cores ? topology.cores : split_cores(topology.cores);
  const std::vector<Stretch> stretches = divide(cores, n);
  CoreShares shares;
  for (const Stretch& stretch : stretches) {
    shares.processors.push_back(processors_of(cores, stretch, bind_to));
  }
  if (has_cores) {
    shares.n_threads = static_cast<int>(std::ranges::min(stretches, {}, &Stretch::size).size());
  }
  return shares;
}

}  // namespace unisono::launch
