#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "unisono/cli/doctor/measure_link.h"

namespace unisono::cli::doctor {
namespace {

constexpr double kGigabyte = 1e9;

const Node& node_of(const std::vector<Node>& nodes, int rank) {
  return *std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return std::binary_search(node.ranks.begin(), node.ranks.end(), rank);
  });
}

double slower_way(const Link& link) {
  return std::min(link.bandwidth, link.bandwidth_back);
}

Findings judge_clocks(const std::vector<Node>& nodes, const std::vector<Link>& links) {
  constexpr double kMost = 1;
  Findings findings;
  for (const Link& link : links) {
    // Seen from the first node, so that one wrong clock is one finding.
    const Node& from = node_of(nodes, link.from);
    if (&from != &nodes.front() ||
        std::abs(link.clock_difference) - link.clock_uncertainty <= kMost) {
      continue;
    }
    findings.push_back(
        {.state = State::kWarning,
         .topic = "clock",
         .text = fmt::format("{}'s clock is {:.3f} s {} {}'s",
                             node_of(nodes, link.to).name,
                             std::abs(link.clock_difference),
                             link.clock_difference > 0 ? "ahead of" : "behind",
                             from.name),
         .advice = "synchronize them by NTP (chrony): logs of two nodes can't be compared"});
  }
  return findings;
}

Findings judge_bandwidths(const std::vector<Node>& nodes, const std::vector<Link>& links) {
  constexpr std::size_t kFewest = 3;
  std::vector<double> all;
  for (const Link& link : links) {
    all.push_back(slower_way(link));
  }
  if (all.size() < kFewest) {
    return {};
  }
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  Findings findings;
  for (const Link& link : links) {
    if (slower_way(link) < *middle / 2) {
      findings.push_back(
          {.state = State::kWarning,
           .topic = "link",
           .text = fmt::format("{} - {}: {:.3g} GB/s, and {:.3g} GB/s is usual between these nodes",
                               node_of(nodes, link.from).name,
                               node_of(nodes, link.to).name,
                               slower_way(link) / kGigabyte,
                               *middle / kGigabyte),
           .advice = "all collectives wait for the slowest link: look at the cable, the speed that "
                     "the interfaces agreed on, and what else uses it"});
    }
  }
  return findings;
}

}  // namespace

Findings judge_links(const std::vector<Node>& nodes, const std::vector<Link>& links) {
  std::vector<Link> between;
  for (const Link& link : links) {
    if (&node_of(nodes, link.from) != &node_of(nodes, link.to)) {
      between.push_back(link);
    }
  }
  Findings findings = judge_clocks(nodes, between);
  append(findings, judge_bandwidths(nodes, between));
  return findings;
}

std::vector<std::vector<std::pair<int, int>>> pair_rounds(int n) {
  // The circle method: the last stays, the others turn around it; with an odd number one rests.
  const int n_seats = n + n % 2;
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int turn = 0; turn + 1 < n_seats; ++turn) {
    std::vector<std::pair<int, int>>& round = rounds.emplace_back();
    for (int seat = 0; seat < n_seats / 2; ++seat) {
      const int moving = n_seats - 1;
      const int one = seat == 0 ? n_seats - 1 : (turn + seat) % moving;
      const int other = (turn + moving - seat) % moving;
      if (std::max(one, other) < n) {
        round.emplace_back(std::min(one, other), std::max(one, other));
      }
    }
  }
  return rounds;
}

}  // namespace unisono::cli::doctor
