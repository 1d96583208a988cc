#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/job.h"
#include "unisono/comm/mirrors.h"
#include "unisono/comm/work.h"
#include "unisono/comm/work_state.h"
#include "unisono/engine/engine.h"

namespace unisono::comm {

/// Runs a group's operations in the order of the calls. The thread that holds the drive token uses
/// the engine: a blocking caller that finds the queue empty, otherwise the progress thread, which
/// starts with the first call that does not run at once.
///
/// Owned by the ProcessGroup. Thread-safe. An error closes the group for all later calls.
class OperationQueue {
 public:
  /// `state` belongs to `job`.
  OperationQueue(std::shared_ptr<Job> job, std::shared_ptr<GroupState> state);
  ~OperationQueue();

  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;
  OperationQueue(OperationQueue&&) = delete;
  OperationQueue& operator=(OperationQueue&&) = delete;

  [[nodiscard]] GroupState& state() { return *state_; }

  [[nodiscard]] const std::shared_ptr<Job>& job() const { return job_; }

  /// Throws Error(kClosed), with the cause, if the group is closed.
  void check_open() const UNISONO_EXCLUDES(mutex_);

  /// Runs the operation, and then `next` with no other operation between. Returns when both have
  /// ended; throws their error.
  void run(Call call, NextCall next = nullptr) UNISONO_EXCLUDES(mutex_);

  /// Like run(), on the progress thread. If the thread cannot start, the group fails.
  [[nodiscard]] Work submit(Call call, NextCall next = nullptr) UNISONO_EXCLUDES(mutex_);

  /// Completes the queued operations, then leaves the group. A second call does nothing. An
  /// interruption aborts the operations, and is thrown after this rank has left.
  void destroy() UNISONO_EXCLUDES(mutex_);

  /// Fails the queued operations, and every later call, with kClosed and the reason.
  void abort(const std::string& reason) UNISONO_EXCLUDES(mutex_);

 private:
  struct Pending {
    Call call;
    NextCall next;
    std::shared_ptr<WorkState> state;
  };

  void throw_if_closed() const UNISONO_REQUIRES(mutex_);
  void drain() UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] bool is_drained_by(Deadline deadline) UNISONO_EXCLUDES(mutex_);
  void await(const std::shared_ptr<WorkState>& state) UNISONO_EXCLUDES(mutex_);
  void number(Call& call, bool has_next) UNISONO_REQUIRES(mutex_);
  [[nodiscard]] std::shared_ptr<WorkState> enqueue(Call call, NextCall next)
      UNISONO_REQUIRES(mutex_);
  template <class Start>
  [[nodiscard]] std::shared_ptr<WorkState> begin(Start start);
  [[nodiscard]] std::exception_ptr drive(const Call& call,
                                         const NextCall& next,
                                         engine::Caller caller);
  void drive_mirrored(const Call& call, engine::Caller caller) const;
  [[nodiscard]] std::exception_ptr drive_next(const Call& call,
                                              const NextCall& next,
                                              engine::Caller caller);
  [[nodiscard]] std::exception_ptr fail(const Call& call, const Error& error);
  void tell_failure() UNISONO_EXCLUDES(mutex_);
  void make_progress() UNISONO_EXCLUDES(mutex_);
  void start_progress() UNISONO_REQUIRES(mutex_);

  std::shared_ptr<Job> job_;           // Shared by the groups of the job.
  std::shared_ptr<GroupState> state_;  // Shared with the monitor while it reports an event.
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Pending> queue_ UNISONO_GUARDED_BY(mutex_);
  std::uint64_t n_operations_ UNISONO_GUARDED_BY(mutex_) = 0;
  // The drive token: a thread uses the engine.
  bool is_driven_ UNISONO_GUARDED_BY(mutex_) = false;
  bool is_stopping_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread progress_thread_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
