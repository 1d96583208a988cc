#include "unisono/health/cycle_search.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/base/utf8.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/wait_cycle.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"

namespace unisono::health {
namespace {

// For how long a rank is asked, or told something.
constexpr std::chrono::milliseconds kAnswerTimeout{1000};

Error verdict_of(const WaitCycle& cycle) {
  if (cycle.gone.empty()) {
    return {ErrorCode::kMismatch,
            fmt::format("ranks wait for each other: {}; call the operations of all groups in the "
                        "same order on all ranks",
                        cycle.text)};
  }
  return {
      ErrorCode::kPeerLost,
      fmt::format("ranks wait for each other: {}; who else could send has left the group, or is "
                  "gone: {}",
                  cycle.text,
                  cycle.gone)};
}

}  // namespace

CycleSearch::CycleSearch(const rendezvous::Roster& roster,
                         ControlPlane& control,
                         GroupRegistry& groups,
                         Logger logger)
    : roster_(roster), control_(control), groups_(groups), logger_(std::move(logger)) {}

CycleSearch::~CycleSearch() {
  finish();
}

void CycleSearch::look(const WaitId& wait) noexcept {
  const MutexLock lock(mutex_);
  if (is_finished_) {
    return;
  }
  try {
    if (!thread_.joinable()) {
      thread_ = start_thread("unisono-cycle",
                             fmt::format("rank {} can't look who waits for whom", roster_.rank),
                             [this] { work_off(); });
    }
    waits_.push_back(wait);
    changed_.notify_all();
  } catch (const std::exception& error) {
    logger_.debug(error.what());
  }
}

void CycleSearch::finish() noexcept {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    is_finished_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) {
    thread.join();
  }
}

bool CycleSearch::is_finished() {
  const MutexLock lock(mutex_);
  return is_finished_;
}

void CycleSearch::work_off() {
  while (true) {
    WaitId wait;
    {
      const MutexLock lock(mutex_);
      while (waits_.empty() && !is_finished_) {
        changed_.wait(mutex_);
      }
      if (is_finished_) {
        return;
      }
      wait = waits_.front();
      waits_.pop_front();
    }
    try {
      search(wait);
    } catch (const std::exception& error) {
      logger_.debug(fmt::format("can't look who waits for whom: {}", error.what()));
    }
  }
}

void CycleSearch::search(const WaitId& id) {
  const std::shared_ptr<MonitoredGroup> group = groups_.find(id.group);
  const std::optional<RankWait> wait = group == nullptr ? std::nullopt : group->find_wait(id);
  std::set<int> silent;
  const auto ask_once = [&](int rank, const RankWait& waiter) -> std::optional<RankWait> {
    if (is_finished() || silent.contains(rank)) {
      return std::nullopt;
    }
    const Deadline deadline = Deadline::after(kAnswerTimeout);
    const std::optional<RankWait> answer = ask(rank, waiter);
    if (!answer && deadline.has_passed()) {
      silent.insert(rank);
    }
    return answer;
  };
  std::optional<WaitCycle> cycle = wait ? find_cycle(*wait, ask_once) : std::nullopt;
  // Those that are gone may have said why.
  if (!cycle || (!cycle->gone.empty() && group->has_heard_reason())) {
    seen_.erase(id);
    return;
  }
  std::vector<RankWait>& before = seen_[id];
  if (are_same(before, cycle->waits)) {
    end(cycle->waits, verdict_of(*cycle));
  } else {
    logger_.debug(fmt::format("ranks may wait for each other: {}", cycle->text));
    before = std::move(cycle->waits);
  }
}

std::optional<RankWait> CycleSearch::ask(int rank, const RankWait& waiter) {
  if (rank < 0 || rank >= roster_.world_size()) {
    return std::nullopt;
  }
  if (rank == roster_.rank) {
    const std::shared_ptr<MonitoredGroup> group = groups_.find(waiter.id.group);
    return group == nullptr ? std::nullopt : group->find_stuck_wait(waiter);
  }
  const Question question{
      .rank = rank,
      .frame = {.kind = transport::FrameKind::kAskWait, .sequence = waiter.id.group},
      .payload = encode_wait(waiter)};
  const Answer answer = control_.ask_all({question}, kAnswerTimeout).front();
  std::optional<RankWait> wait = answer.frame && answer.frame->kind == transport::FrameKind::kWait
                                     ? decode_wait(answer.payload)
                                     : std::nullopt;
  if (wait) {
    wait->rank = rank;
  }
  return wait;
}

// A rank that has heard the error may end at once. So first each rank learns what it is to say,
// whatever it sees of the others; then the waits end, this rank's own last.
void CycleSearch::end(std::span<const RankWait> waits, const Error& verdict) {
  const auto notify_own = [&](void (MonitoredGroup::*event)(const Error&)) {
    for (const RankWait& wait : waits) {
      const std::shared_ptr<MonitoredGroup> group =
          wait.rank == roster_.rank ? groups_.find(wait.id.group) : nullptr;
      if (group != nullptr) {
        (*group.*event)(verdict);
      }
    }
  };
  notify_own(&MonitoredGroup::hear_verdict);
  tell_others(waits, transport::FrameKind::kVerdict, verdict);
  tell_others(waits, transport::FrameKind::kVerdictEnd, verdict);
  notify_own(&MonitoredGroup::end_with);
}

void CycleSearch::tell_others(std::span<const RankWait> waits,
                              transport::FrameKind kind,
                              const Error& verdict) {
  const std::string_view text = utf8_prefix(verdict.what(), transport::kMaxAbortBytes);
  const auto payload = std::as_bytes(std::span(text));
  std::vector<Question> questions;
  for (const RankWait& wait : waits) {
    if (wait.rank != roster_.rank) {
      questions.push_back({.rank = wait.rank,
                           .frame = {.kind = kind,
                                     .step = static_cast<std::uint32_t>(verdict.code()),
                                     .sequence = wait.id.group},
                           .payload = {payload.begin(), payload.end()}});
    }
  }
  (void)control_.ask_all(questions, kAnswerTimeout);
}

}  // namespace unisono::health
