#include "unisono/comm/operation_queue.h"

#include <fmt/format.h>

#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/thread.h"
#include "unisono/comm/mirrors.h"
#include "unisono/comm/process_group.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {

OperationQueue::OperationQueue(std::shared_ptr<Job> job, std::shared_ptr<GroupState> state)
    : job_(std::move(job)), state_(std::move(state)) {
  state_->on_failed_messages([this] { tell_failure(); });
}

OperationQueue::~OperationQueue() {
  try {
    destroy();
  } catch (const Error& error) {
    // An interruption is reported by its source.
    if (error.code() == ErrorCode::kMismatch) {
      state_->report_undelivered(error);
    }
  } catch (const std::exception&) {
    return;
  }
}

void OperationQueue::throw_if_closed() const {
  if (is_stopping_) {
    throw Error(ErrorCode::kClosed, "the process group was destroyed");
  }
  if (state_->failure().is_set()) [[unlikely]] {
    state_->note_delivered();
    throw Error(
        ErrorCode::kClosed,
        fmt::format("the process group is closed since: {}", state_->failure().error().what()));
  }
}

void OperationQueue::check_open() const {
  const MutexLock lock(mutex_);
  throw_if_closed();
}

// The monitor may detect a failure between two operations, when no thread drives the group to
// report the failure to the ranks of other nodes.
void OperationQueue::tell_failure() {
  {
    const MutexLock lock(mutex_);
    if (is_driven_ || is_stopping_) {
      return;  // The thread that drives or leaves reports the failure.
    }
    is_driven_ = true;
  }
  state_->fail(state_->failure().error());
  {
    const MutexLock lock(mutex_);
    is_driven_ = false;
  }
  changed_.notify_all();
}

// The caller may reuse its buffers after this function, also after an error.
void OperationQueue::await(const std::shared_ptr<WorkState>& state) {
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

void OperationQueue::run(Call call, NextCall next) {
  if (state_->failure().is_set()) [[unlikely]] {
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
  const bool is_mirrored = Mirrors::has_any(call.operation);
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
  if (is_mirrored) [[unlikely]] {
    Mirrors(call.operation).follow();
  }
}

Work OperationQueue::submit(Call call, NextCall next) {
  if (state_->failure().is_set()) [[unlikely]] {
    tell_failure();
  }
  return Work(begin([&] {
    const MutexLock lock(mutex_);
    throw_if_closed();
    return enqueue(std::move(call), std::move(next));
  }));
}

// If an operation can't begin here (for example without a thread), the group fails, because the
// other ranks would wait for it in vain.
template <class Start>
std::shared_ptr<WorkState> OperationQueue::begin(Start start) {
  try {
    return start();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kClosed) {
      state_->give_up(error);
      tell_failure();
    }
    throw;
  } catch (const std::exception& problem) {
    const Error error(ErrorCode::kInternal, fmt::format("{} {}", state_->prefix(), problem.what()));
    state_->give_up(error);
    tell_failure();
    throw Error(error);
  }
}

// The next operation gets the following number.
void OperationQueue::number(Call& call, bool has_next) {
  call.operation.sequence = ++n_operations_;
  if (has_next) {
    ++n_operations_;
  }
  state_->note_call(n_operations_);
}

std::shared_ptr<WorkState> OperationQueue::enqueue(Call call, NextCall next) {
  // This comes first: without the thread the operation must not be in the queue.
  start_progress();
  number(call, next != nullptr);
  (void)call.limit.deadline();
  auto state = std::make_shared<WorkState>(
      transport::WaitId{.group = state_->number(), .sequence = call.operation.sequence},
      job_->blocked_threads(),
      Mirrors(call.operation));
  queue_.push_back({std::move(call), std::move(next), state});
  changed_.notify_all();
  return state;
}

void OperationQueue::start_progress() {
  if (progress_thread_.joinable()) {
    return;
  }
  progress_thread_ =
      start_thread("unisono-group",
                   state_->prefix() + " can't start the progress thread of its operations",
                   [this] { make_progress(); });
}

std::exception_ptr OperationQueue::fail(const Call& call, const Error& error) {
  state_->note_delivered();
  state_->fail(error);
  if (error.code() != ErrorCode::kTimeout) {
    return std::make_exception_ptr(error);
  }
  return std::make_exception_ptr(TimedOut(error, state_->late_ranks(call.operation.sequence)));
}

std::exception_ptr OperationQueue::drive(const Call& call,
                                         const NextCall& next,
                                         engine::Caller caller) {
  // Operations behind one that failed end with its error.
  if (state_->failure().is_set()) [[unlikely]] {
    return fail(call, state_->failure().error());
  }
  try {
    if (Mirrors::has_any(call.operation)) [[unlikely]] {
      drive_mirrored(call, caller);
    } else {
      state_->engine().execute(call.operation, call.limit, caller);
    }
    state_->note_done(call.operation.descriptor.kind);
    return next == nullptr ? nullptr : drive_next(call, next, caller);
  } catch (const Error& error) {
    return fail(call, state_->explain(state_->with_callers(error)));
  } catch (const std::exception& error) {
    // This rank can't continue (for example out of memory), and the other ranks must be informed.
    return fail(call, Error(ErrorCode::kInternal, error.what()));
  }
}

// Executes an operation whose buffers stand for device memory.
void OperationQueue::drive_mirrored(const Call& call, engine::Caller caller) const {
  const auto or_throw_with_call = [&](const auto& copy) {
    try {
      copy();
    } catch (const Error& error) {
      const engine::Operation& operation = call.operation;
      std::string name =
          transport::describe(operation.descriptor, operation.sequence, {}, state_->job_ranks());
      if (!operation.label.empty()) {
        name += " of " + operation.label;
      }
      throw transport::with_call(state_->prefix(), name, error);
    }
  };
  const Mirrors mirrors(call.operation);
  TimeLimit limit = call.limit;
  or_throw_with_call([&] { mirrors.fetch(limit.deadline()); });
  state_->engine().execute(call.operation, limit, caller);
  or_throw_with_call([&] { mirrors.write_back(); });
}

std::exception_ptr OperationQueue::drive_next(const Call& call,
                                              const NextCall& next,
                                              engine::Caller caller) {
  const engine::Operation& done = call.operation;
  try {
    Call following = next();
    following.operation.sequence = done.sequence + 1;
    return drive(following, nullptr, caller);
  } catch (const std::exception& problem) {
    if (state_->failure().is_set()) {
      return fail(call, state_->failure().error());
    }
    const std::string name =
        transport::describe(done.descriptor, done.sequence, {}, state_->job_ranks());
    return fail(
        call,
        Error(ErrorCode::kInternal,
              fmt::format(
                  "{} after {} of {}: {}", state_->prefix(), name, done.label, problem.what())));
  }
}

void OperationQueue::make_progress() {
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
    // Releases the buffers before the caller is notified.
    pending.call.operation = {};
    pending.next = nullptr;
    pending.state->complete(std::move(error));
  }
}

bool OperationQueue::is_drained_by(Deadline deadline) {
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
  return state_->drain_messages(deadline);
}

void OperationQueue::drain() {
  while (!is_drained_by(next_interruption_check())) {
    check_interruption();
  }
  while (!state_->is_settled_by(next_interruption_check())) {
    check_interruption();
  }
}

void OperationQueue::destroy() {
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
    state_->note_delivered();
    state_->leave();
    std::rethrow_exception(interruption);
  }
  state_->leave();
}

void OperationQueue::abort(const std::string& reason) {
  state_->note_abort(state_->roster().self().job_rank, Error(ErrorCode::kClosed, reason));
  tell_failure();
}

}  // namespace unisono::comm
