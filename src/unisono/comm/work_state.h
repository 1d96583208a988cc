#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/mirrors.h"
#include "unisono/engine/engine.h"
#include "unisono/peers/long_waits.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {

/// Result of an operation, or its absence while the operation is in flight. Shared by the group and
/// the Work handles. Thread-safe.
class WorkState final : public engine::MessageHandle {
 public:
  /// The id of a message is set by begin(). `waits` records the threads that wait for the
  /// operation, and its callbacks. `mirrors` are those of the operation's buffers.
  WorkState(const transport::WaitId& id,
            std::shared_ptr<peers::BlockedThreads> waits,
            Mirrors mirrors = {})
      : id_(id), waits_(std::move(waits)), mirrors_(std::move(mirrors)) {}

  void begin(const transport::WaitId& id) override { id_ = id; }

  /// Ends the operation, with null for success; calls the callbacks on this thread. Call once.
  void complete(std::exception_ptr error) UNISONO_EXCLUDES(mutex_);

  /// As complete(), for a message, whose result this function copies to the device.
  void complete(int source, std::exception_ptr error) override;

  /// Declares that this thread blocks until end_wait(), for any of the operations on which it has
  /// called begin_wait().
  void begin_wait();
  void end_wait();

  /// Returns false if the operation has not ended by the deadline.
  [[nodiscard]] bool wait_until(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool is_completed() const {
    // Pairs with the release in complete(): a thread that reads true also sees the operation's
    // results.
    return is_completed_.load(std::memory_order_acquire);
  }

  [[nodiscard]] std::exception_ptr error() UNISONO_EXCLUDES(mutex_);

  /// Calls `callback` with the result of settle() when the operation ends, or now if the operation
  /// has ended. Calls it without a lock.
  void on_completion(std::function<void(std::exception_ptr)> callback) UNISONO_EXCLUDES(mutex_);

  /// `check` is called by the first wait or callback that finds the operation successful, which
  /// receives the error that `check` throws. `check` must not use this object.
  void set_check(std::function<void()> check) override UNISONO_EXCLUDES(mutex_);

  /// Returns the error of an operation that has ended, or the exception of the check, which runs
  /// now; null for success.
  [[nodiscard]] std::exception_ptr settle() UNISONO_EXCLUDES(mutex_);

  /// The mirrors of the operation's buffers.
  [[nodiscard]] const Mirrors& mirrors() const { return mirrors_; }

  [[nodiscard]] std::uint64_t sequence() const { return id_.sequence; }

  /// Returns the sending rank of a receive. Valid after the operation has ended.
  [[nodiscard]] int source() const { return source_.load(std::memory_order_relaxed); }

 private:
  transport::WaitId id_;  // Constant after other threads have access.
  const std::shared_ptr<peers::BlockedThreads> waits_;
  const Mirrors mirrors_;
  std::atomic<bool> is_completed_ = false;
  std::atomic<int> source_ = -1;  // Ordered by is_completed_.
  Mutex mutex_;
  Condition completed_;
  std::exception_ptr error_ UNISONO_GUARDED_BY(mutex_);
  std::function<void()> check_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::function<void(std::exception_ptr)>> callbacks_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
