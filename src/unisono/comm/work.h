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

/// Handle of an operation in flight. Copies refer to the same operation, which goes on when the
/// last handle is gone. All members are thread-safe. A default-constructed Work is complete.
class Work {
 public:
  Work() = default;

  explicit Work(std::shared_ptr<comm::WorkState> state) : state_(std::move(state)) {}

  /// Waits until the operation has ended; throws its error if it failed.
  ///
  /// Needs no timeout of its own: the operation has one, and fails when it passes. An interruption
  /// (see set_interruption_check()) ends the wait, and not the operation.
  void wait() const;

  /// Waits at most `duration`. Returns false, and changes nothing, if the operation is still in
  /// flight then; throws its error if it failed.
  [[nodiscard]] bool try_wait(std::chrono::nanoseconds duration) const;

  [[nodiscard]] bool is_completed() const;

  /// Why the operation failed; null while it is in flight and after success.
  [[nodiscard]] std::exception_ptr exception() const;

  /// Calls `callback` once with the operation's error (null after success): from the thread that
  /// completes the operation, or at once from this one if it has ended already. No lock is held.
  /// A callback must not throw and must not wait for another operation of the same group.
  void on_completion(std::function<void(std::exception_ptr)> callback) const;

  /// The rank a received message came from, once it has; -1 before that, and for other operations.
  [[nodiscard]] int source_rank() const;

  /// The operation's number in its group, from 1.
  [[nodiscard]] std::uint64_t sequence_number() const;

 private:
  friend class WaitMark;

  std::shared_ptr<comm::WorkState> state_;
};

/// For who waits by other means than Work::wait(), a callback say: while it lives, this thread does
/// nothing else until the operation has ended. That tells ranks that wait for this one's next call
/// whether it can still come; one that waits in vain for a rank that waits in vain for it fails.
/// And a receive that takes long is reported while somebody waits for it.
class WaitMark {
 public:
  WaitMark() = default;

  explicit WaitMark(const Work& work) { add(work); }

  /// This thread waits until any has ended that was added.
  void add(const Work& work);

  ~WaitMark();

  WaitMark(const WaitMark&) = delete;
  WaitMark& operator=(const WaitMark&) = delete;
  WaitMark(WaitMark&&) = delete;
  WaitMark& operator=(WaitMark&&) = delete;

 private:
  std::shared_ptr<comm::WorkState> state_;  // Of one of them; null where there is none.
};

}  // namespace unisono
