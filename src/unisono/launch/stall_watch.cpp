#include "unisono/launch/stall_watch.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/wait_record.h"
#include "unisono/launch/late_rank.h"

namespace unisono::launch {
namespace {

using Time = Deadline::Clock::time_point;

constexpr std::chrono::seconds kBetweenLooks{1};

// Ranks look after their waits about once a second.
constexpr std::chrono::seconds kStale{10};

// More than a busy machine would make of kBetweenLooks.
constexpr std::chrono::seconds kGap{5};

}  // namespace

std::vector<RankWait> present_waits(int rank,
                                    std::span<const LongWait> waits,
                                    Time counts_from,
                                    Time now) {
  std::vector<RankWait> present;
  for (const LongWait& wait : waits) {
    if (now - wait.seen < kStale) {
      present.push_back({.rank = rank,
                         .since = std::max(wait.since, counts_from),
                         .operation = wait.operation,
                         .late = wait.late});
    }
  }
  return present;
}

StallWatch::StallWatch(int first_rank, std::size_t n_ranks)
    : first_rank_(first_rank), ranks_(n_ranks) {}

void StallWatch::look(Time now) {
  if (last_look_ && now - *last_look_ > kGap) {
    counts_from_ = now;
  }
  last_look_ = now;
  next_look_ = Deadline::at(now + kBetweenLooks);
  waits_.clear();
  for (std::size_t worker = 0; worker < ranks_.size(); ++worker) {
    Rank& rank = ranks_[worker];
    if (std::optional<WaitRecord> record = rank.file.read()) {
      rank.said = std::move(record->waits);
      rank.pid = record->pid;
    }
    std::vector<RankWait> waits =
        present_waits(first_rank_ + static_cast<int>(worker), rank.said, counts_from_, now);
    rank.has_changed = rank.has_changed || waits != rank.waits;
    rank.waits = std::move(waits);
    waits_.insert(waits_.end(), rank.waits.begin(), rank.waits.end());
  }
}

std::vector<std::size_t> StallWatch::take_changed() {
  std::vector<std::size_t> changed;
  for (std::size_t worker = 0; worker < ranks_.size(); ++worker) {
    if (std::exchange(ranks_[worker].has_changed, false)) {
      changed.push_back(worker);
    }
  }
  return changed;
}

}  // namespace unisono::launch
