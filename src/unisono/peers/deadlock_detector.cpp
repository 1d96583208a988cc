#include "unisono/peers/deadlock_detector.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/text.h"
#include "unisono/base/thread.h"
#include "unisono/peers/deadlock.h"

namespace unisono::peers {
namespace {

// Time limit of a question or a report.
constexpr std::chrono::milliseconds kQuestionTimeout{1000};

Error verdict_of(const Deadlock& cycle) {
  if (cycle.gone.empty()) {
    return {ErrorCode::kMismatch,
            fmt::format("ranks wait for each other: {}; call the operations of all groups in the "
                        "same order on all ranks",
                        cycle.text)};
  }
  return {ErrorCode::kPeerLost,
          fmt::format("ranks wait for each other: {}; all other ranks that could send have left "
                      "the group, or are gone: {}",
                      cycle.text,
                      cycle.gone)};
}

}  // namespace

DeadlockDetector::DeadlockDetector(const transport::RankTable& roster,
                                   ControlPlane& control,
                                   GroupRegistry& groups,
                                   base::Logger logger)
    : roster_(roster), control_(control), groups_(groups), logger_(std::move(logger)) {}

DeadlockDetector::~DeadlockDetector() {
  finish();
}

void DeadlockDetector::look(const transport::WaitId& wait) noexcept {
  const MutexLock lock(mutex_);
  if (is_finished_) {
    return;
  }
  try {
    if (!thread_.joinable()) {
      thread_ = start_thread("unisono-cycle",
                             fmt::format("rank {} can't search for deadlocks", roster_.rank),
                             [this] { work_off(); });
    }
    waits_.push_back(wait);
    changed_.notify_all();
  } catch (const std::exception& error) {
    logger_.debug(error.what());
  }
}

void DeadlockDetector::finish() noexcept {
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

bool DeadlockDetector::is_finished() {
  const MutexLock lock(mutex_);
  return is_finished_;
}

void DeadlockDetector::work_off() {
  while (true) {
    transport::WaitId wait;
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
      logger_.debug(fmt::format("can't search for deadlocks: {}", error.what()));
    }
  }
}

void DeadlockDetector::search(const transport::WaitId& id) {
  const std::shared_ptr<MonitoredGroup> group = groups_.find(id.group);
  const std::optional<transport::Stall> wait =
      group == nullptr ? std::nullopt : group->find_wait(id);
  std::set<int> silent;
  const auto ask_once = [&](int rank,
                            const transport::Stall& waiter) -> std::optional<transport::Stall> {
    if (is_finished() || silent.contains(rank)) {
      return std::nullopt;
    }
    const Deadline deadline = Deadline::after(kQuestionTimeout);
    const std::optional<transport::Stall> answer = ask(rank, waiter);
    if (!answer && deadline.has_passed()) {
      silent.insert(rank);
    }
    return answer;
  };
  std::optional<Deadlock> cycle = wait ? find_deadlock(*wait, ask_once) : std::nullopt;
  // Ranks that are gone may have reported the cause.
  if (!cycle || (!cycle->gone.empty() && group->has_reported_failure())) {
    seen_.erase(id);
    return;
  }
  std::vector<transport::Stall>& before = seen_[id];
  if (are_same(before, cycle->waits)) {
    end(cycle->waits, verdict_of(*cycle));
  } else {
    logger_.debug(fmt::format("ranks may wait for each other: {}", cycle->text));
    before = std::move(cycle->waits);
  }
}

std::optional<transport::Stall> DeadlockDetector::ask(int rank, const transport::Stall& waiter) {
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
      .payload = transport::encode(waiter)};
  const Answer answer = control_.ask_all({question}, kQuestionTimeout).front();
  std::optional<transport::Stall> wait =
      answer.frame && answer.frame->kind == transport::FrameKind::kWait
          ? transport::decode_stall(answer.payload)
          : std::nullopt;
  if (wait) {
    wait->rank = rank;
  }
  return wait;
}

// A rank may end as soon as it gets the error. Therefore all ranks first store the verdict, which
// then replaces any later error; then the waits end, this rank's own waits last.
void DeadlockDetector::end(std::span<const transport::Stall> waits, const Error& verdict) {
  const auto notify_own = [&](void (MonitoredGroup::*event)(const Error&)) {
    for (const transport::Stall& wait : waits) {
      const std::shared_ptr<MonitoredGroup> group =
          wait.rank == roster_.rank ? groups_.find(wait.id.group) : nullptr;
      if (group != nullptr) {
        (*group.*event)(verdict);
      }
    }
  };
  notify_own(&MonitoredGroup::set_deadlock);
  tell_others(waits, transport::FrameKind::kDeadlock, verdict);
  tell_others(waits, transport::FrameKind::kDeadlockCommit, verdict);
  notify_own(&MonitoredGroup::end_with);
}

void DeadlockDetector::tell_others(std::span<const transport::Stall> waits,
                                   transport::FrameKind kind,
                                   const Error& verdict) {
  const std::string_view text = utf8_prefix(verdict.what(), transport::kMaxAbortBytes);
  const auto payload = std::as_bytes(std::span(text));
  std::vector<Question> questions;
  for (const transport::Stall& wait : waits) {
    if (wait.rank != roster_.rank) {
      questions.push_back({.rank = wait.rank,
                           .frame = {.kind = kind,
                                     .step = static_cast<std::uint32_t>(verdict.code()),
                                     .sequence = wait.id.group},
                           .payload = {payload.begin(), payload.end()}});
    }
  }
  (void)control_.ask_all(questions, kQuestionTimeout);
}

}  // namespace unisono::peers
