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
#include "unisono/comm/rank_wait.h"
#include "unisono/comm/work_waits.h"
#include "unisono/engine/message_call.h"

namespace unisono::comm {

/// How one operation ended, or that it has not. Shared by the group and the Work handles.
class WorkState final : public engine::MessageHandle {
 public:
  /// Of a message the id comes with begin(). `waits` hears which threads wait for it, and whether
  /// it has callbacks.
  WorkState(const WaitId& id, std::shared_ptr<WorkWaits> waits)
      : id_(id), waits_(std::move(waits)) {}

  void begin(const WaitId& id) override { id_ = id; }

  /// Ends the operation, with null for success; calls the callbacks on this thread. Once.
  void complete(std::exception_ptr error) UNISONO_EXCLUDES(mutex_);

  void complete(int source, std::exception_ptr error) override {
    source_.store(source, std::memory_order_relaxed);
    complete(std::move(error));
  }

  /// Until end_wait() this thread does nothing else than wait, for any for which it is called.
  void begin_wait();
  void end_wait();

  /// False if the operation has not ended by then.
  [[nodiscard]] bool wait_until(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool is_completed() const {
    // Pairs with the release in complete(): who sees true sees the operation's results.
    return is_completed_.load(std::memory_order_acquire);
  }

  [[nodiscard]] std::exception_ptr error() UNISONO_EXCLUDES(mutex_);

  void on_completion(std::function<void(std::exception_ptr)> callback) UNISONO_EXCLUDES(mutex_);

  /// What is called when somebody first hears that the operation has ended well, by a wait or a
  /// callback; what it throws, that one hears. It must not come back here.
  void set_check(std::function<void()> check) override UNISONO_EXCLUDES(mutex_);

  /// Of an operation that has ended: its error, or what the check throws now; null for success.
  [[nodiscard]] std::exception_ptr settle() UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] std::uint64_t sequence() const { return id_.sequence; }

  /// For a receive: the rank its message came from. Known once it has ended.
  [[nodiscard]] int source() const { return source_.load(std::memory_order_relaxed); }

 private:
  WaitId id_;  // Constant once others know of it.
  const std::shared_ptr<WorkWaits> waits_;
  std::atomic<bool> is_completed_ = false;
  std::atomic<int> source_ = -1;  // Ordered by is_completed_.
  Mutex mutex_;
  Condition completed_;
  std::exception_ptr error_ UNISONO_GUARDED_BY(mutex_);
  std::function<void()> check_ UNISONO_GUARDED_BY(mutex_);
  std::vector<std::function<void(std::exception_ptr)>> callbacks_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
