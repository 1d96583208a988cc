#include "unisono/comm/group.h"

#include <fmt/format.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruption.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/comm/timed_out.h"
#include "unisono/comm/work.h"
#include "unisono/comm/work_state.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/operation.h"
#include "unisono/health/rank_wait.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {

Group::Group(std::shared_ptr<Job> job, std::shared_ptr<Membership> membership)
    : job_(std::move(job)), membership_(std::move(membership)) {
  membership_->on_failed_messages([this] { tell_failure(); });
}

Group::~Group() {
  try {
    destroy();
  } catch (const Error& error) {
    // An interruption is reported by its source.
    if (error.code() == ErrorCode::kMismatch) {
      membership_->report_unheard(error);
    }
  } catch (const std::exception&) {
    return;
  }
}

void Group::throw_if_closed() const {
  if (is_stopping_) {
    throw Error(ErrorCode::kClosed, "the process group was destroyed");
  }
  if (membership_->failure().is_set()) [[unlikely]] {
    membership_->note_delivered();
    throw Error(ErrorCode::kClosed,
                fmt::format("the process group is closed since: {}",
                            membership_->failure().error().what()));
  }
}

void Group::check_open() const {
  const MutexLock lock(mutex_);
  throw_if_closed();
}

// The watcher may find a failure between two operations: then nobody drives who would tell the
// ranks of other nodes.
void Group::tell_failure() {
  {
    const MutexLock lock(mutex_);
    if (is_driven_ || is_stopping_) {
      return;  // Who drives, or leaves, tells.
    }
    is_driven_ = true;
  }
  membership_->fail(membership_->failure().error());
  {
    const MutexLock lock(mutex_);
    is_driven_ = false;
  }
  changed_.notify_all();
}

// Its buffers are the caller's, who has them back when this ends, however it ends.
void Group::await(const std::shared_ptr<WorkState>& state) {
  try {
    Work(state).wait();
  } catch (const std::exception& error) {
    if (!state->is_completed()) {
      abort(error.what());
      (void)state->wait_until(Deadline::never());
    }
    throw;
  }
}

void Group::run(Call call, NextCall next) {
  if (membership_->failure().is_set()) [[unlikely]] {
    tell_failure();
  }
  bool has_to_queue = false;
  const std::shared_ptr<WorkState> queued = begin([&]() -> std::shared_ptr<WorkState> {
    const MutexLock lock(mutex_);
    throw_if_closed();
    has_to_queue = is_driven_ || !queue_.empty();
    if (has_to_queue) {
      return enqueue(std::move(call), std::move(next));
    }
    number(call, next != nullptr);
    is_driven_ = true;
    return nullptr;
  });
  if (has_to_queue) {
    await(queued);
    return;
  }
  // NOLINTBEGIN(bugprone-use-after-move): they are moved only where they have to queue.
  const std::exception_ptr error = drive(call, next, engine::Caller::kUser);
  // NOLINTEND(bugprone-use-after-move)
  bool is_awaited = false;
  {
    const MutexLock lock(mutex_);
    is_driven_ = false;
    is_awaited = is_stopping_ || !queue_.empty();
  }
  if (is_awaited) {
    changed_.notify_all();
  }
  if (error) {
    std::rethrow_exception(error);
  }
}

Work Group::submit(Call call, NextCall next) {
  if (membership_->failure().is_set()) [[unlikely]] {
    tell_failure();
  }
  return Work(begin([&] {
    const MutexLock lock(mutex_);
    throw_if_closed();
    return enqueue(std::move(call), std::move(next));
  }));
}

// An operation that can't begin here (there can be no more threads, say) is one that the other
// ranks wait for in vain.
template <class Start>
std::shared_ptr<WorkState> Group::begin(Start start) {
  try {
    return start();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kClosed) {
      membership_->give_up(error);
      tell_failure();
    }
    throw;
  } catch (const std::exception& problem) {
    const Error error(ErrorCode::kInternal,
                      fmt::format("{} {}", membership_->prefix(), problem.what()));
    membership_->give_up(error);
    tell_failure();
    throw Error(error);
  }
}

// The next one has the number that follows.
void Group::number(Call& call, bool has_next) {
  call.operation.sequence = ++n_operations_;
  if (has_next) {
    ++n_operations_;
  }
  membership_->note_call(n_operations_);
}

std::shared_ptr<WorkState> Group::enqueue(Call call, NextCall next) {
  // First of all: without the thread the operation must not be in the queue.
  start_progress();
  number(call, next != nullptr);
  (void)call.limit.deadline();
  auto state = std::make_shared<WorkState>(
      health::WaitId{.group = membership_->number(), .sequence = call.operation.sequence},
      job_->work_waits());
  queue_.push_back({std::move(call), std::move(next), state});
  changed_.notify_all();
  return state;
}

void Group::start_progress() {
  if (progress_thread_.joinable()) {
    return;
  }
  progress_thread_ =
      start_thread("unisono-group",
                   membership_->prefix() + " can't start the progress thread of its operations",
                   [this] { make_progress(); });
}

std::exception_ptr Group::fail(const Call& call, const Error& error) {
  membership_->note_delivered();
  membership_->fail(error);
  if (error.code() != ErrorCode::kTimeout) {
    return std::make_exception_ptr(error);
  }
  return std::make_exception_ptr(TimedOut(error, membership_->late_ranks(call.operation.sequence)));
}

std::exception_ptr Group::drive(const Call& call, const NextCall& next, engine::Caller caller) {
  // Operations behind one that failed end with its error.
  if (membership_->failure().is_set()) [[unlikely]] {
    return fail(call, membership_->failure().error());
  }
  try {
    membership_->engine().execute(call.operation, call.limit, caller);
    membership_->note_done(call.operation.descriptor.kind);
    return next == nullptr ? nullptr : drive_next(call, next, caller);
  } catch (const Error& error) {
    return fail(call, membership_->explain(membership_->with_callers(error)));
  } catch (const std::exception& error) {
    // This rank can't take part any more (it is out of memory, say), and the others must know.
    return fail(call, Error(ErrorCode::kInternal, error.what()));
  }
}

std::exception_ptr Group::drive_next(const Call& call,
                                     const NextCall& next,
                                     engine::Caller caller) {
  const engine::Operation& done = call.operation;
  try {
    Call following = next();
    following.operation.sequence = done.sequence + 1;
    return drive(following, nullptr, caller);
  } catch (const std::exception& problem) {
    if (membership_->failure().is_set()) {
      return fail(call, membership_->failure().error());
    }
    const std::string name =
        transport::describe(done.descriptor, done.sequence, {}, membership_->job_ranks());
    return fail(
        call,
        Error(
            ErrorCode::kInternal,
            fmt::format(
                "{} after {} of {}: {}", membership_->prefix(), name, done.label, problem.what())));
  }
}

void Group::make_progress() {
  while (true) {
    Pending pending{
        .call = {.limit = TimeLimit({}), .operation = {}}, .next = nullptr, .state = nullptr};
    {
      const MutexLock lock(mutex_);
      while (is_driven_ || (queue_.empty() && !is_stopping_)) {
        changed_.wait(mutex_);
      }
      if (queue_.empty()) {
        return;
      }
      pending = std::move(queue_.front());
      queue_.pop_front();
      is_driven_ = true;
    }
    std::exception_ptr error = drive(pending.call, pending.next, engine::Caller::kProgress);
    {
      const MutexLock lock(mutex_);
      is_driven_ = false;
    }
    changed_.notify_all();
    // The buffers are the caller's again before it hears of the end.
    pending.call.operation = {};
    pending.next = nullptr;
    pending.state->complete(std::move(error));
  }
}

bool Group::is_drained_by(Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    while (is_driven_ || !queue_.empty()) {
      if (deadline.is_never()) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, deadline.time())) {
        return false;
      }
    }
  }
  return membership_->drain_messages(deadline);
}

void Group::drain() {
  while (!is_drained_by(next_interruption_check())) {
    check_interruption();
  }
  while (!membership_->is_settled_by(next_interruption_check())) {
    check_interruption();
  }
}

void Group::destroy() {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(is_stopping_, true)) {
      return;
    }
  }
  changed_.notify_all();
  std::exception_ptr interruption;
  try {
    drain();
  } catch (const std::exception& error) {
    interruption = std::current_exception();
    abort(error.what());
  }
  std::thread progress;
  {
    const MutexLock lock(mutex_);
    progress = std::move(progress_thread_);
  }
  if (progress.joinable()) {
    progress.join();
  }
  {
    const MutexLock lock(mutex_);
    while (is_driven_) {
      changed_.wait(mutex_);
    }
  }
  if (interruption != nullptr) {
    membership_->note_delivered();
    membership_->leave();
    std::rethrow_exception(interruption);
  }
  membership_->leave();
}

void Group::abort(const std::string& reason) {
  membership_->note_abort(membership_->roster().self().rank, Error(ErrorCode::kClosed, reason));
  tell_failure();
}

}  // namespace unisono::comm
