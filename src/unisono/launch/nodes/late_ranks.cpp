#include "unisono/launch/nodes/late_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "unisono/launch/late_rank.h"
#include "unisono/launch/nodes/messages.h"

namespace unisono::launch::nodes {
namespace {

RankWait to_rank_wait(int rank, const Wait& wait, LateRanks::Time now) {
  constexpr std::int64_t kMostMs = std::int64_t{1} << 40;
  return {.rank = rank,
          .since =
              now - std::chrono::milliseconds(std::clamp<std::int64_t>(wait.waited_ms, 0, kMostMs)),
          .operation = wait.operation,
          .late = {wait.late.begin(), wait.late.end()}};
}

}  // namespace

void LateRanks::start() {
  waits_.clear();
  given_up_.reset();
  next_due_ = Time::max();
}

void LateRanks::take(const Waits& message, Time now) {
  std::vector<RankWait>& waits = waits_[message.rank];
  waits.clear();
  for (const Wait& wait : message.waits) {
    waits.push_back(to_rank_wait(message.rank, wait, now));
  }
}

std::optional<LateRank> LateRanks::find(Time now) {
  if (timeout_ == std::chrono::milliseconds::zero()) {
    return std::nullopt;
  }
  std::vector<RankWait> all;
  for (const auto& [rank, waits] : waits_) {
    all.insert(all.end(), waits.begin(), waits.end());
  }
  next_due_ = next_late_rank(all, timeout_, now).time();
  std::optional<LateRank> late = find_late_rank(all, timeout_, now);
  return late && given_up_ == late->rank ? std::nullopt : late;
}

}  // namespace unisono::launch::nodes
