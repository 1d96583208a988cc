#include "unisono/launch/binding/share_cores.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::launch {
namespace {

struct Range {
  int first;
  int last;
};

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> to_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

// Parses the kernel's format "0-3,8,10-11". Parts in any other form are left out.
std::vector<Range> parse_list(std::string_view text) {
  std::vector<Range> ranges;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const std::optional<int> first = to_number(part.substr(0, dash));
    const std::optional<int> last =
        dash == std::string_view::npos ? first : to_number(part.substr(dash + 1));
    if (first && last) {
      ranges.push_back({*first, *last});
    }
  }
  return ranges;
}

// Returns the lowest processor of a list, which identifies the core or the cache that the list
// describes.
int lowest_of(const std::string& path, int otherwise) {
  const std::vector<Range> ranges = parse_list(read_line(path));
  return ranges.empty() ? otherwise : std::ranges::min(ranges, {}, &Range::first).first;
}

// Memory-only NUMA nodes (slow or fast memory) have no processors.
std::map<int, std::vector<Range>> processors_of_nodes(const std::string& sysfs) {
  constexpr std::string_view kPrefix = "node";
  std::map<int, std::vector<Range>> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(sysfs + "/node", error)) {
    const std::string name = entry.path().filename().string();
    const std::optional<int> number = name.starts_with(kPrefix)
                                          ? to_number(std::string_view(name).substr(kPrefix.size()))
                                          : std::nullopt;
    if (number) {
      nodes[*number] = parse_list(read_line(entry.path().string() + "/cpulist"));
    }
  }
  return nodes;
}

int node_of(const std::map<int, std::vector<Range>>& nodes, int processor) {
  const auto node = std::ranges::find_if(nodes, [processor](const auto& each) {
    return std::ranges::any_of(each.second, [processor](const Range& range) {
      return range.first <= processor && processor <= range.last;
    });
  });
  return node == nodes.end() ? 0 : node->first;
}

// The kernel numbers the caches of a processor from the first level upwards. A core without
// described caches counts as having its own cache.
int last_level_cache_of(const std::string& folder, int core) {
  constexpr int kMostCaches = 5;
  for (int i = kMostCaches - 1; i >= 0; --i) {
    const int cache = lowest_of(fmt::format("{}/cache/index{}/shared_cpu_list", folder, i), -1);
    if (cache >= 0) {
      return cache;
    }
  }
  return core;
}

// The place of a core; the order of places is the order of cores in a Topology.
struct Place {
  int socket;
  int numa_node;
  int cache;
  int core;

  auto operator<=>(const Place&) const = default;
};

}  // namespace

CoreTopology read_topology(std::span<const int> processors, const std::string& sysfs) {
  const std::map<int, std::vector<Range>> nodes = processors_of_nodes(sysfs);
  std::map<Place, std::vector<int>> cores;
  for (const int processor : processors) {
    const std::string folder = fmt::format("{}/cpu/cpu{}", sysfs, processor);
    const std::string socket = read_line(folder + "/topology/physical_package_id");
    // Linux 5.0 and later have a second name for this list and keep the first name.
    const int core = lowest_of(folder + "/topology/thread_siblings_list", processor);
    const Place place{.socket = to_number(socket).value_or(0),
                      .numa_node = node_of(nodes, processor),
                      .cache = last_level_cache_of(folder, core),
                      .core = core};
    cores[place].push_back(processor);
  }
  CoreTopology topology;
  for (auto& [place, own] : cores) {
    std::ranges::sort(own);
    topology.cores.push_back(
        {.processors = std::move(own), .numa_node = place.numa_node, .socket = place.socket});
  }
  return topology;
}

CoreTopology restrict_to(const CoreTopology& topology, std::span<const int> processors) {
  const std::set<int> allowed(processors.begin(), processors.end());
  CoreTopology result;
  for (Core core : topology.cores) {
    std::erase_if(core.processors, [&](int processor) { return !allowed.contains(processor); });
    if (!core.processors.empty()) {
      result.cores.push_back(std::move(core));
    }
  }
  return result;
}

std::vector<int> numa_nodes_of(const CoreTopology& topology, std::span<const int> processors) {
  std::set<int> nodes;
  for (const Core& core : restrict_to(topology, processors).cores) {
    nodes.insert(core.numa_node);
  }
  return {nodes.begin(), nodes.end()};
}

namespace {

using Cores = std::vector<Core>;

// A range of neighbouring cores in a list.
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

// Returns part `i` of `n` parts; the sizes of parts differ by a single core at most.
Stretch part_of(const Stretch& whole, std::size_t i, std::size_t n) {
  return {whole.begin + (whole.size() * i / n), whole.begin + (whole.size() * (i + 1) / n)};
}

// Joins NUMA nodes to at most `n_ranks` stretches of whole nodes. Each stretch except the last
// stops growing as soon as it has `least` cores.
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

// Returns true if one more rank would get more cores in `there` than in `here`. In a tie the node
// with fewer ranks is better.
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

// Returns one stretch for each rank.
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

// Returns a list in which each hardware thread is a core of its own.
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

CoreShares share_cores(const CoreTopology& topology, int n_ranks, BindTo bind_to) {
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
