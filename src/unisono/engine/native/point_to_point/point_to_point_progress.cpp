#include "unisono/engine/native/point_to_point/point_to_point_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "unisono/transport/failure.h"

namespace unisono::engine {
namespace {

using transport::Look;

// Keeps the wait of other threads for the lock below a microsecond.
constexpr int kSpinsPerLock = 16;

// Messages that were sent before their rank left have arrived by then.
constexpr std::chrono::seconds kReceivePatience{1};

// Returns the number of times that the lock is taken for `n_spins` spins.
constexpr int n_locks(int n_spins) {
  return (n_spins + kSpinsPerLock - 1) / kSpinsPerLock;
}

}  // namespace

PointToPointProgress::PointToPointProgress(const NativeParts& parts,
                                           GroupTransports& transports,
                                           bool has_cores)
    : parts_(parts),
      has_cores_(has_cores),
      pending_(parts, transports, has_cores),
      sleep_state_(transports.endpoint(), transports.packet_streams()),
      waiting_{.parts = parts,
               .matcher = pending_.matcher(),
               .poll_again = [this]() UNISONO_REQUIRES(mutex_) { pending_.advance_all(); }} {}

PointToPointProgress::~PointToPointProgress() {
  finish();
}

int PointToPointProgress::pass(const MessageCall& call) {
  throw_if_closed();
  if (call.is_send) {
    const MutexLock lock(mutex_);
    throw_if_stopping();
    if (pending_.send_at_once(call)) {
      return kAnyRank;
    }
  }
  MessageOperation operation(call, waiting_);
  operation.is_attended = true;
  operation.thread = this_thread_number();
  const Arrival arrival = spin_for(operation);
  if (arrival == Arrival::kReceived) {
    return operation.source;
  }
  transport::WaitMode mode = mode_of(operation);
  if (arrival == Arrival::kNotYet) {
    mode.n_spins = 0;
  }
  {
    const MutexLock lock(mutex_);
    throw_if_stopping();
    pending_.post(operation);
    if (operation.has_ended && !pending_.has_finished()) {
      return operation.source;
    }
    sleep_state_.begin_spinning();
  }
  drive(
      operation.thread,
      [&] { return operation.has_ended; },
      mode,
      has_cores_ && !operation.needs_network() ? &spin_limit_ : nullptr);
  if (operation.error) [[unlikely]] {
    throw Error(*operation.error);
  }
  return operation.source;
}

void PointToPointProgress::begin(std::span<const MessageCall> calls) {
  throw_if_closed();
  PendingMessages::Operations operations;
  operations.reserve(calls.size());
  for (const MessageCall& call : calls) {
    operations.push_back(std::make_unique<MessageOperation>(call, waiting_));
  }
  PendingMessages::Operations finished;
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    throw_if_stopping();
    // This comes first: no message may begin without the thread.
    if (!progress_thread_.joinable()) {
      std::thread thread;
      (void)pending_.guard([&] {
        thread = start_thread("unisono-message",
                              "can't start the progress thread of its messages",
                              [this] { make_progress(); });
        return true;
      });
      progress_thread_ = std::move(thread);
    }
    const bool have_begun = pending_.begin(operations);
    error = have_begun ? std::nullopt : pending_.error();
    finished = pending_.take_finished();
    if (pending_.n_async() > 0) {
      sleep_state_.wake_sleeper();
      changed_.notify_all();
    }
  }
  if (error) [[unlikely]] {
    parts_.group.failure.note_delivered();
    settle_failure();
  }
  PendingMessages::complete(finished);
  if (error) [[unlikely]] {
    throw Error(*error);
  }
}

// Reports a failure that was found between two operations to the other ranks, before it throws.
void PointToPointProgress::throw_if_closed() const {
  if (parts_.group.failure.is_set()) [[unlikely]] {
    report_failure_();
    parts_.group.failure.note_delivered();
    throw Error(
        ErrorCode::kClosed,
        fmt::format("the process group is closed since: {}", parts_.group.failure.error().what()));
  }
}

// Fast path of a blocking receive while no other operation is pending. While this thread spins, the
// receive need not be posted, and other channels need not be polled.
Arrival PointToPointProgress::spin_for(MessageOperation& receive) {
  if (receive.is_send) {
    return Arrival::kInvolved;
  }
  auto arrival = Arrival::kNotYet;
  const int n_spins = mode_of(receive).n_spins;
  const int n_vain = transport::spin(n_locks(n_spins), [&] {
    const MutexLock lock(mutex_);
    arrival = is_stopping_ ? Arrival::kInvolved
                           : pending_.receive_at_once(receive, std::min(n_spins, kSpinsPerLock));
    return arrival == Arrival::kNotYet ? Look::kNothing : Look::kDone;
  });
  if (arrival == Arrival::kReceived && n_vain > 0) {
    spin_limit_.note_spun();
  }
  return arrival;
}

transport::WaitMode PointToPointProgress::mode_of(const MessageOperation& operation) const {
  if (operation.needs_network()) {
    return transport::kBriefWait;
  }
  transport::WaitMode mode = transport::calling_wait(has_cores_);
  mode.n_spins = std::min(mode.n_spins, spin_limit_.n_spins());
  return mode;
}

// Waits until `is_done`, after begin_spinning(). Takes the lock once for several spins.
void PointToPointProgress::drive(std::uint64_t thread,
                                 const IsDone& is_done,
                                 transport::WaitMode mode,
                                 SpinLimit* spin_limit) {
  int n_spins_left = mode.n_spins;
  const auto poll_once = [&] {
    const int n_polls = std::clamp(n_spins_left, 1, kSpinsPerLock);
    n_spins_left -= n_polls;
    return poll(is_done, n_polls) ? Look::kDone : Look::kNothing;
  };
  bool is_newcomer = true;
  const auto sleep_once = [&] {
    if (is_newcomer) {
      (void)locked([this]() UNISONO_REQUIRES(mutex_) {
        end_spinning();
        return false;
      });
    }
    return sleep(thread, is_done, std::exchange(is_newcomer, false)) ? Look::kDone : Look::kNothing;
  };
  mode.n_spins = n_locks(mode.n_spins);
  transport::wait(mode, spin_limit, poll_once, sleep_once);
}

// Runs the step with the lock held, then completes the ended operations without the lock. Returns
// the step's result.
template <class Step>
bool PointToPointProgress::locked(Step step) {
  PendingMessages::Operations finished;
  bool is_over = false;
  bool has_failed = false;
  {
    const MutexLock lock(mutex_);
    is_over = step();
    has_failed = pending_.has_failed();
    finished = pending_.take_finished();
    if (is_stopping_ && pending_.size() == 0) {
      changed_.notify_all();  // Ends drain().
    }
  }
  if (has_failed) [[unlikely]] {
    settle_failure();
  }
  PendingMessages::complete(finished);
  return is_over;
}

// Polls up to `n_polls` times. Returns true, and ends the spinning, once `is_done`.
bool PointToPointProgress::poll(const IsDone& is_done, int n_polls) {
  return locked([&]() UNISONO_REQUIRES(mutex_) {
    for (int n = 0; n < n_polls; ++n) {
      if (n > 0) {
        pause_briefly();
      }
      (void)pending_.advance();
      if (is_done()) {
        end_spinning();
        return true;
      }
      if (pending_.has_finished() || pending_.has_failed()) {
        return false;
      }
    }
    return false;
  });
}

// Sleeps once, as the sleeper if there is none. A newcomer first wakes the sleeper, which must
// include the newcomer's messages in its sleep.
bool PointToPointProgress::sleep(std::uint64_t thread, const IsDone& is_done, bool is_newcomer) {
  return locked([&]() UNISONO_REQUIRES(mutex_) {
    if (!is_done() && !fail_overdue(thread)) {
      if (sleep_state_.has_sleeper()) {
        if (is_newcomer) {
          sleep_state_.wake_sleeper();
        }
        changed_.wait(mutex_);
      } else {
        sleep_for_all();
        // Wakes the threads with ended or overdue messages, and the next sleeper.
        changed_.notify_all();
      }
    }
    return is_done();
  });
}

// Announces a sleep, polls once more, and sleeps if no data has moved.
void PointToPointProgress::sleep_for_all() {
  const std::size_t n_before = pending_.size();
  const std::uint32_t rings = sleep_state_.begin_sleep(pending_.needs_network());
  const bool has_moved = pending_.advance() || pending_.check() || pending_.size() != n_before;
  // A failure or message that comes after this poll rings the bell.
  const bool must_settle = pending_.error() && !parts_.group.failure.is_set() && !is_settling_;
  if (!has_moved && !must_settle) {
    sleep_state_.sleep(mutex_, rings, pending_.next_check());
  }
  sleep_state_.end_sleep();
  (void)pending_.advance();
}

void PointToPointProgress::end_spinning() {
  if (sleep_state_.end_spinning()) {
    (void)pending_.advance();
    changed_.notify_all();
    sleep_state_.wake_after_spinning();
  }
}

void PointToPointProgress::make_progress() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (pending_.n_async() == 0 && !is_stopping_) {
        changed_.wait(mutex_);
      }
      if (pending_.n_async() == 0) {
        return;
      }
      sleep_state_.begin_spinning();
    }
    constexpr std::uint64_t kAsynchronous = 0;
    drive(
        kAsynchronous,
        [this]() UNISONO_REQUIRES(mutex_) { return pending_.n_async() == 0; },
        transport::kBriefWait,
        nullptr);
  }
}

// Asks the peers for which overdue messages of this thread wait, and fails the messages. Returns
// whether a question was asked, during which a wake-up may have been missed. No thread does so for
// the messages of another thread, because its own messages may progress meanwhile.
bool PointToPointProgress::fail_overdue(std::uint64_t thread) {
  bool has_asked = false;
  while (const MessageOperation* const overdue = pending_.find_overdue(thread)) {
    const transport::WaitId id = overdue->id;
    const int peer = overdue->peer;
    has_asked = true;
    mutex_.unlock();
    const std::string late = ask(peer);
    mutex_.lock();
    // The message may have arrived meanwhile.
    (void)pending_.advance();
    pending_.expire(id, late);
  }
  return has_asked;
}

// Returns the state of the rank for which a message waits; "" if the state is unknown.
std::string PointToPointProgress::ask(int peer) const noexcept {
  try {
    return peer == kAnyRank ? "" : parts_.group.events.describe_overdue(std::span(&peer, 1));
  } catch (const std::exception&) {
    return "";  // For example out of memory.
  }
}

std::optional<transport::Stall> PointToPointProgress::find_receive_where(
    const PendingMessages::Predicate& is_it) {
  std::optional<transport::Stall> wait;
  std::vector<int> gone;
  {
    const MutexLock lock(mutex_);
    wait = pending_.find_receive(is_it, gone);
  }
  if (wait && !gone.empty()) {
    wait->gone = parts_.group.events.describe_late(gone);
  }
  return wait;
}

// The first thread in this function makes the messages' error the group's failure, unless the group
// has failed before. It reports the failure to the other ranks before any caller gets the error and
// may end the process.
void PointToPointProgress::settle_failure() {
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(is_settling_, true)) {
      return;
    }
    error = pending_.error();
  }
  PendingMessages::Operations finished;
  if (error && !parts_.group.failure.is_set()) {
    // Wakes all waits, which then end.
    (void)parts_.group.failure.set(parts_.group.events.explain(*error));
    const MutexLock lock(mutex_);
    (void)pending_.advance();
    changed_.notify_all();
    finished = pending_.take_finished();
  }
  report_failure_();
  PendingMessages::complete(finished);
}

void PointToPointProgress::listen() noexcept {
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    if (is_stopping_ || !report_failure_) {
      return;
    }
    is_listening_ = true;
    // Otherwise another thread polls, or no message can arrive any more.
    if (!pending_.needs_network() && !is_settling_ && !parts_.group.failure.is_set()) {
      pending_.read_between_calls();
      error = pending_.error();
    }
  }
  if (error) {
    (void)parts_.group.failure.set(*error);
  }
  if (parts_.group.failure.is_set()) {
    report_failure_();
  }
  const MutexLock lock(mutex_);
  is_listening_ = false;
  changed_.notify_all();
}

bool PointToPointProgress::drain(Deadline deadline) {
  const MutexLock lock(mutex_);
  if (!std::exchange(is_stopping_, true)) {
    cancel_receives_at_ = Deadline::after(kReceivePatience);
    changed_.notify_all();
    sleep_state_.wake();
  }
  while (pending_.size() > 0 || is_listening_) {
    if (cancel_receives_at_.has_passed()) {
      cancel_receives_at_ = Deadline::never();
      pending_.cancel_receives();
      // Wakes the threads that wait for these receives.
      changed_.notify_all();
      sleep_state_.wake();
    } else if (deadline.has_passed()) {
      return false;
    } else if (const Deadline next = earlier(deadline, cancel_receives_at_); next.is_never()) {
      changed_.wait(mutex_);
    } else {
      (void)changed_.wait_until(mutex_, next.time());
    }
  }
  return true;
}

// No other operation is pending, so only this thread makes progress.
void PointToPointProgress::await_credit(Deadline deadline) {
  const bool must_wait = locked([&]() UNISONO_REQUIRES(mutex_) {
    const bool has_debtors = pending_.ask_for_credit(deadline);
    if (has_debtors) {
      sleep_state_.begin_spinning();
    }
    return has_debtors;
  });
  if (must_wait) {
    drive(
        this_thread_number(),
        [this]() UNISONO_REQUIRES(mutex_) { return pending_.is_credit_over(); },
        transport::kBriefWait,
        nullptr);
    const MutexLock lock(mutex_);
    pending_.end_credit_wait();
  }
}

void PointToPointProgress::finish() {
  (void)drain(Deadline::never());
  std::thread progress;
  {
    const MutexLock lock(mutex_);
    progress = std::move(progress_thread_);
  }
  if (progress.joinable()) {
    progress.join();
  }
}

}  // namespace unisono::engine
