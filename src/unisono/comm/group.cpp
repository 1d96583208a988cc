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
#include "unisono/comm/work.h"
#include "unisono/comm/work_state.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/operation.h"

namespace unisono::comm {

Group::Group(std::shared_ptr<Job> job, std::shared_ptr<Links> links)
    : job_(std::move(job)), links_(std::move(links)) {
  links_->messenger().on_failure([this] { tell_failure(); });
}

Group::~Group() {
  try {
    destroy();
  } catch (const std::exception&) {
    return;  // Interrupted; who interrupts finds another way to say so.
  }
}

void Group::throw_if_closed() const {
  if (is_stopping_) {
    throw Error(ErrorCode::kClosed, "the process group was destroyed");
  }
  if (links_->failure().is_set()) [[unlikely]] {
    throw Error(
        ErrorCode::kClosed,
        fmt::format("the process group is closed since: {}", links_->failure().error().what()));
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
  links_->fail(links_->failure().error());
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

void Group::run(Call call) {
  if (links_->failure().is_set()) [[unlikely]] {
    tell_failure();
  }
  std::shared_ptr<WorkState> state;
  {
    const MutexLock lock(mutex_);
    throw_if_closed();
    if (is_driven_ || !queue_.empty()) {
      state = enqueue(std::move(call));
    } else {
      call.operation.sequence = next_sequence();
      is_driven_ = true;
    }
  }
  if (state != nullptr) {
    await(state);
    return;
  }
  // NOLINTNEXTLINE(bugprone-use-after-move): it is moved only where `state` is set.
  const std::exception_ptr error = drive(call, engine::Caller::kUser);
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

Work Group::submit(Call call) {
  if (links_->failure().is_set()) [[unlikely]] {
    tell_failure();
  }
  const MutexLock lock(mutex_);
  throw_if_closed();
  return Work(enqueue(std::move(call)));
}

std::uint64_t Group::next_sequence() {
  links_->note_call(++n_operations_);
  return n_operations_;
}

std::shared_ptr<WorkState> Group::enqueue(Call call) {
  // First of all: without the thread the operation must not be in the queue.
  start_progress();
  call.operation.sequence = next_sequence();
  (void)call.limit.deadline();
  auto state = std::make_shared<WorkState>(call.operation.sequence);
  queue_.push_back({std::move(call), state});
  changed_.notify_all();
  return state;
}

void Group::start_progress() {
  if (progress_thread_.joinable()) {
    return;
  }
  progress_thread_ = start_thread(
      "unisono-group",
      fmt::format("rank {} can't start its progress thread", links_->roster().self().rank),
      [this] { make_progress(); });
}

std::exception_ptr Group::drive(const Call& call, engine::Caller caller) {
  // Operations behind one that failed end with its error.
  if (links_->failure().is_set()) [[unlikely]] {
    links_->fail(links_->failure().error());
    return std::make_exception_ptr(links_->failure().error());
  }
  try {
    links_->engine().execute(call.operation, call.limit, caller);
    return nullptr;
  } catch (const Error& error) {
    const Error explained = links_->explain(error);
    links_->fail(explained);
    return std::make_exception_ptr(explained);
  } catch (const std::exception& error) {
    // Out of memory, say: this rank can't take part any more, and the others must know.
    const Error failure(ErrorCode::kInternal, error.what());
    links_->fail(failure);
    return std::make_exception_ptr(failure);
  }
}

void Group::make_progress() {
  while (true) {
    Pending pending{.call = {.operation = {}, .limit = TimeLimit({})}, .state = nullptr};
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
    std::exception_ptr error = drive(pending.call, engine::Caller::kProgress);
    {
      const MutexLock lock(mutex_);
      is_driven_ = false;
    }
    changed_.notify_all();
    // The buffers are the caller's again before it hears of the end.
    pending.call.operation = {};
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
  return links_->messenger().drain(deadline);
}

void Group::drain() {
  while (!is_drained_by(next_interruption_check())) {
    check_interruption();
  }
}

void Group::destroy() {
  {
    const MutexLock lock(mutex_);
    if (is_destroyed_) {
      return;
    }
    is_destroyed_ = true;
    is_stopping_ = true;
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
  links_->leave();
  if (interruption != nullptr) {
    std::rethrow_exception(interruption);
  }
}

void Group::abort(const std::string& reason) {
  links_->note_abort(links_->roster().self().rank, Error(ErrorCode::kClosed, reason));
  tell_failure();
}

}  // namespace unisono::comm
