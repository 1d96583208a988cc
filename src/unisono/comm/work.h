#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

namespace unisono {

namespace comm {
class WorkState;
}

/// Handle of an operation in flight. Copies refer to the same operation, which continues after the
/// last handle is gone. Thread-safe. A default-constructed Work is complete.
class Work {
 public:
  Work() = default;

  /// For the library: a handle of the operation with this state.
  explicit Work(std::shared_ptr<comm::WorkState> state) : state_(std::move(state)) {}

  /// Waits until the operation has ended; throws the operation's error. Results in the memory of a
  /// device may still be on their way: the work that this thread passes to its current stream of
  /// the device from now on waits for the results.
  ///
  /// Needs no timeout, because the operation itself fails at its timeout. An interruption (see
  /// set_interruption_check()) ends the wait, but not the operation.
  void wait() const;

  /// Like wait(), and waits until the results are in the memory of the device, at most `timeout`
  /// after the operation has ended. Throws Error(kTimeout), and Error(kSystem) if the device has
  /// failed.
  void synchronize(std::chrono::nanoseconds timeout = std::chrono::minutes(30)) const;

  /// Waits at most `duration`. Returns false, without any other effect, if the operation is still
  /// in flight; throws its error if the operation failed.
  [[nodiscard]] bool try_wait(std::chrono::nanoseconds duration) const;

  /// Returns whether the operation has ended, successfully or not. Does not wait.
  [[nodiscard]] bool is_completed() const;

  /// Returns the operation's error; null while it is in flight and after success.
  [[nodiscard]] std::exception_ptr exception() const;

  /// Calls `callback` once with the operation's error (null after success): on the thread that
  /// completes the operation, or immediately on this thread if the operation has ended. No lock is
  /// held. A callback must not throw and must not wait for another operation of the same group.
  void on_completion(std::function<void(std::exception_ptr)> callback) const;

  /// Returns the sending rank of a received message; -1 before it has arrived, and for other
  /// operations.
  [[nodiscard]] int source_rank() const;

  /// The operation's number in its group, from 1.
  [[nodiscard]] std::uint64_t sequence_number() const;

 private:
  friend class WaitMark;

  std::shared_ptr<comm::WorkState> state_;
};

/// Declares that the current thread blocks on this Work without Work::wait(), for example on a
/// callback, and does not continue until the operation has ended. With this information other ranks
/// decide whether this rank's next call can still come, so that deadlocks are detected, and a
/// receive that takes long is reported only while a thread waits for it.
///
/// Lives on the stack of the waiting thread.
class WaitMark {
 public:
  WaitMark() = default;

  explicit WaitMark(const Work& work) { add(work); }

  /// Adds an operation: the thread waits until any of the added operations has ended.
  void add(const Work& work);

  ~WaitMark();

  WaitMark(const WaitMark&) = delete;
  WaitMark& operator=(const WaitMark&) = delete;
  WaitMark(WaitMark&&) = delete;
  WaitMark& operator=(WaitMark&&) = delete;

 private:
  // State of one added operation; null without an operation.
  std::shared_ptr<comm::WorkState> state_;
};

}  // namespace unisono
