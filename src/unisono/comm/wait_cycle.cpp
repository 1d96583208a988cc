#include "unisono/comm/wait_cycle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/comm/rank_wait.h"

namespace unisono::comm {
namespace {

// Where many ranks are late, the next search begins anew.
constexpr int kMostQuestions = 64;

// A wait that others led to: `by` is the index of the one that waits for its rank.
struct Found {
  RankWait wait;
  std::size_t by;
};

std::vector<RankWait> path_to(const std::deque<Found>& found, std::size_t last) {
  std::vector<RankWait> path;
  for (std::size_t at = last; at != 0; at = found[at].by) {
    path.push_back(found[at].wait);
  }
  path.push_back(found.front().wait);
  std::reverse(path.begin(), path.end());
  return path;
}

// All have called it, and what they wait for may be on its way.
bool is_one_operation(std::span<const RankWait> cycle) {
  return std::all_of(cycle.begin(), cycle.end(), [&](const RankWait& wait) {
    return !wait.id.is_message && wait.id == cycle.front().id;
  });
}

}  // namespace

bool is_same(const RankWait& one, const RankWait& other) {
  return one.rank == other.rank && one.id == other.id;
}

// Breadth first, so that the circle is the shortest one.
std::vector<RankWait> find_cycle(const RankWait& start, const AskRank& ask) {
  std::deque<Found> found{{.wait = start, .by = 0}};
  int n_questions = 0;
  for (std::size_t at = 0; at < found.size(); ++at) {
    for (const int rank : found[at].wait.late) {
      if (n_questions++ == kMostQuestions) {
        return {};
      }
      std::optional<RankWait> next = ask(rank, found[at].wait);
      if (!next) {
        continue;
      }
      if (is_same(*next, start)) {
        std::vector<RankWait> cycle = path_to(found, at);
        if (!is_one_operation(cycle)) {
          return cycle;
        }
        continue;
      }
      const bool is_known = std::any_of(found.begin(), found.end(), [&](const Found& known) {
        return is_same(known.wait, *next);
      });
      if (!is_known) {
        found.push_back({.wait = std::move(*next), .by = at});
      }
    }
  }
  return {};
}

bool are_same(std::span<const RankWait> some, std::span<const RankWait> others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(), is_same);
}

std::string describe_cycle(std::span<const RankWait> cycle) {
  const auto lowest =
      std::min_element(cycle.begin(), cycle.end(), [](const RankWait& one, const RankWait& other) {
        return one.rank < other.rank;
      });
  const auto first = static_cast<std::size_t>(lowest - cycle.begin());
  std::string text = fmt::format("rank {}", lowest->rank);
  for (std::size_t n = 0; n < cycle.size(); ++n) {
    const RankWait& wait = cycle[(first + n) % cycle.size()];
    const RankWait& next = cycle[(first + n + 1) % cycle.size()];
    text +=
        fmt::format("{} waits in {} for rank {}", n == 0 ? "" : ", which", wait.text, next.rank);
  }
  return text;
}

}  // namespace unisono::comm
