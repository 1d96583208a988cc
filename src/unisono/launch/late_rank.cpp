#include "unisono/launch/late_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/launch/report.h"

namespace unisono::launch {
namespace {

using Time = Deadline::Clock::time_point;

constexpr std::size_t kMostLines = 5;

}  // namespace

std::optional<LateRank> find_late_rank(std::span<const RankWait> waits,
                                       std::chrono::milliseconds limit,
                                       Time now) {
  std::set<int> waiting;
  for (const RankWait& wait : waits) {
    if (!wait.late.empty()) {
      waiting.insert(wait.rank);
    }
  }
  std::map<int, Time> since;
  for (const RankWait& wait : waits) {
    for (const int rank : wait.late) {
      if (now - wait.since >= limit && !waiting.contains(rank)) {
        const auto [known, is_new] = since.emplace(rank, wait.since);
        known->second = std::min(known->second, wait.since);
      }
    }
  }
  const auto first = std::ranges::min_element(
      since, {}, [](const auto& entry) { return std::pair(entry.second, entry.first); });
  if (first == since.end()) {
    return std::nullopt;
  }
  LateRank late{.rank = first->first, .since = first->second};
  std::ranges::copy_if(waits, std::back_inserter(late.waits), [&](const RankWait& wait) {
    return std::ranges::find(wait.late, late.rank) != wait.late.end();
  });
  std::ranges::stable_sort(late.waits, {}, &RankWait::since);
  return late;
}

Deadline next_late_rank(std::span<const RankWait> waits,
                        std::chrono::milliseconds limit,
                        Time now) {
  Deadline next = Deadline::never();
  for (const RankWait& wait : waits) {
    if (!wait.late.empty() && now - wait.since < limit) {
      next = earlier(next, Deadline::at(wait.since + limit));
    }
  }
  return next;
}

std::string describe_waits(const LateRank& late, Time now) {
  struct LateOperation {
    const std::string* operation;
    Time since;
    std::set<int> ranks;
  };

  std::vector<LateOperation> operations;
  for (const RankWait& wait : late.waits) {
    auto found = std::ranges::find_if(
        operations, [&](const LateOperation& known) { return *known.operation == wait.operation; });
    if (found == operations.end()) {
      found = operations.insert(found,
                                {.operation = &wait.operation, .since = wait.since, .ranks = {}});
    }
    found->ranks.insert(wait.rank);
  }
  std::string text;
  for (const LateOperation& waiting :
       std::span(operations).first(std::min(operations.size(), kMostLines))) {
    const std::vector<int> ranks(waiting.ranks.begin(), waiting.ranks.end());
    text += fmt::format("{}{} in {} for {}",
                        text.empty() ? "" : "\n",
                        rank_list(ranks),
                        *waiting.operation,
                        describe_seconds(now - waiting.since));
  }
  return operations.size() > kMostLines
             ? fmt::format("{}\nand in {} other operations", text, operations.size() - kMostLines)
             : text;
}

std::string describe_seconds(std::chrono::nanoseconds time) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count());
}

}  // namespace unisono::launch
