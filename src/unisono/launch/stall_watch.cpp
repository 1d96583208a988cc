#include "unisono/launch/stall_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/launch/report.h"

namespace unisono::launch {
namespace {

using Time = Deadline::Clock::time_point;

constexpr std::size_t kMostLines = 5;

}  // namespace

std::optional<LateRankWaits> find_late_rank(std::span<const RankWait> waits,
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
  LateRankWaits late{.rank = first->first, .since = first->second};
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

std::string describe_waits(const LateRankWaits& late, Time now) {
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

std::optional<LateRankWaits> LateRanks::find(Time now) {
  if (timeout_ == std::chrono::milliseconds::zero()) {
    return std::nullopt;
  }
  std::vector<RankWait> all;
  for (const auto& [rank, waits] : waits_) {
    all.insert(all.end(), waits.begin(), waits.end());
  }
  next_due_ = next_late_rank(all, timeout_, now).time();
  std::optional<LateRankWaits> late = find_late_rank(all, timeout_, now);
  return late && given_up_ == late->rank ? std::nullopt : late;
}

}  // namespace unisono::launch::nodes

namespace unisono::launch {

// The size is sealed, so that a process that maps the file cannot lose a part of the mapping.
WaitFile::WaitFile()
    : file_(::memfd_create("unisono-rank-waits", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!file_.is_open() || ::ftruncate(file_.get(), kWaitFileBytes) != 0 ||
      ::fcntl(file_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw system_error("cannot make a file for a rank's waits", errno);
  }
}

std::string WaitFile::path() const {
  return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get());
}

std::optional<WaitRecord> WaitFile::read() const {
  std::vector<std::byte> bytes(kWaitFileBytes);
  const ssize_t n_read = ::pread(file_.get(), bytes.data(), bytes.size(), 0);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(n_read, 0)));
  const std::optional<std::span<const std::byte>> record = find_checked(bytes);
  return record ? decode_wait_record(*record) : std::nullopt;
}

namespace {

using Time = Deadline::Clock::time_point;

constexpr std::chrono::seconds kBetweenLooks{1};

// Ranks update their waits about once a second.
constexpr std::chrono::seconds kStale{10};

// Longer than a busy machine stretches kBetweenLooks.
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
