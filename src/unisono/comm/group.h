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
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/work.h"
#include "unisono/comm/work_state.h"
#include "unisono/engine/engine.h"

namespace unisono::comm {

/// Runs a group's operations one after the other, in the order of the calls. Whoever holds the
/// drive token works with the engine: a blocking caller that finds nothing before it, else the
/// progress thread, which starts with the first call that does not run at once. Thread-safe.
class Group {
 public:
  /// The membership is of this job.
  Group(std::shared_ptr<Job> job, std::shared_ptr<Membership> membership);
  ~Group();

  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  Group(Group&&) = delete;
  Group& operator=(Group&&) = delete;

  [[nodiscard]] Membership& membership() { return *membership_; }

  [[nodiscard]] const std::shared_ptr<Job>& job() const { return job_; }

  /// Throws Error(kClosed), with the cause, where no operation can run any more.
  void check_open() const UNISONO_EXCLUDES(mutex_);

  /// Runs the operation, and the next if there is one with nothing between them, and returns when
  /// they have ended. Throws their error.
  void run(Call call, NextCall next = nullptr) UNISONO_EXCLUDES(mutex_);

  /// The same on the progress thread. Where that can't start the group fails.
  [[nodiscard]] Work submit(Call call, NextCall next = nullptr) UNISONO_EXCLUDES(mutex_);

  /// Ends what is under way, then leaves. Does nothing the second time. An interruption aborts what
  /// is under way, and is thrown when the group has been left.
  void destroy() UNISONO_EXCLUDES(mutex_);

  /// Makes what is under way, and every later call, fail with kClosed and the reason.
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
  [[nodiscard]] std::exception_ptr drive_next(const Call& call,
                                              const NextCall& next,
                                              engine::Caller caller);
  [[nodiscard]] std::exception_ptr fail(const Call& call, const Error& error);
  void tell_failure() UNISONO_EXCLUDES(mutex_);
  void make_progress() UNISONO_EXCLUDES(mutex_);
  void start_progress() UNISONO_REQUIRES(mutex_);

  std::shared_ptr<Job> job_;                // Shared by its groups.
  std::shared_ptr<Membership> membership_;  // The watcher takes part while it tells of something.
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Pending> queue_ UNISONO_GUARDED_BY(mutex_);
  std::uint64_t n_operations_ UNISONO_GUARDED_BY(mutex_) = 0;
  // The drive token: someone works with the engine.
  bool is_driven_ UNISONO_GUARDED_BY(mutex_) = false;
  bool is_stopping_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread progress_thread_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::comm
