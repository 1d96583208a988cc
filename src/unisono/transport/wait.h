#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/thread.h"
#include "unisono/transport/failure.h"

namespace unisono::transport {

/// Receives the events of a long wait and makes the errors. Implemented by the code that runs the
/// operation. The observer must outlive the WaitMonitor, and is called only by the thread that uses
/// the WaitMonitor.
class WaitObserver {
 public:
  WaitObserver() = default;
  virtual ~WaitObserver() = default;
  WaitObserver(const WaitObserver&) = delete;
  WaitObserver& operator=(const WaitObserver&) = delete;
  WaitObserver(WaitObserver&&) = delete;
  WaitObserver& operator=(WaitObserver&&) = delete;

  /// Returns the error for a deadline that passed while the operation waited for `late_ranks`.
  [[nodiscard]] virtual Error timed_out(std::span<const int> late_ranks) const = 0;

  /// Returns an error if a rank of `late_ranks` has left the group without doing its part;
  /// std::nullopt otherwise. Called often.
  [[nodiscard]] virtual std::optional<Error> departed(std::span<const int> late_ranks) const = 0;

  /// Checks whether another rank has aborted, and if so sets the failure that the wait checks.
  /// Called about once a second once the wait has lasted a while.
  virtual void listen() const = 0;

  /// Throws Error if `late_ranks` cannot do their part any more. Called at doubling intervals once
  /// the wait has lasted a while.
  virtual void look_into(std::span<const int> late_ranks) const = 0;

  /// Returns the time since which a caller waits for the operation; std::nullopt if no caller
  /// waits. A time before the start of the operation counts as its start.
  [[nodiscard]] virtual std::optional<Deadline::Clock::time_point> waited_since() const {
    return Deadline::Clock::time_point::min();
  }

  /// Publishes a long wait: no data has arrived since `since`, and the operation now waits for
  /// `late_ranks`. Called about once a second until hide().
  virtual void show(Deadline::Clock::time_point /*since*/,
                    std::span<const int> /*late_ranks*/) const {}

  /// Withdraws the wait published by show(): data has arrived, or the wait is over.
  virtual void hide() const noexcept {}

  /// Reports a stall after `waited`. The operation continues to wait for `late_ranks`.
  virtual void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const = 0;
};

/// Supervises the waits of an operation: failure of the group, interruption, departed ranks,
/// timeout and stall reports.
///
/// Owned by the operation. Used by the waiting thread only. The time limit starts with the first
/// call of next_check() or check(), unless `limit` has begun before: an operation that does not
/// sleep never reads the clock. check() throws the errors.
class WaitMonitor {
 public:
  /// Reports a stall after `first_stall`, and again each time the wait has doubled. No stall is
  /// reported while no caller waits for the operation. `failure` and `observer` must outlive the
  /// monitor.
  WaitMonitor(TimeLimit limit,
              std::chrono::milliseconds first_stall,
              const Failure& failure,
              const WaitObserver& observer);

  ~WaitMonitor() { hide(); }

  WaitMonitor(const WaitMonitor&) = delete;
  WaitMonitor& operator=(const WaitMonitor&) = delete;
  WaitMonitor(WaitMonitor&&) = delete;
  WaitMonitor& operator=(WaitMonitor&&) = delete;

  /// The latest time at which a sleeping wait must call check() again.
  [[nodiscard]] Deadline next_check();

  /// Reports due stalls. `late_ranks` returns the ranks that the caller waits for now.
  ///
  /// Throws the group's failure, the error of an interruption check, the departure of an awaited
  /// rank, or the timeout if the deadline has passed.
  void check(const std::function<std::vector<int>()>& late_ranks);

  /// Records that data has arrived, so that stalls are measured from now on. Does not read the
  /// clock.
  void note_progress() {
    has_moved_ = true;
    hide();
  }

 private:
  void begin();
  [[nodiscard]] bool is_waited_for();
  void show(std::span<const int> late_ranks);

  void hide() {
    if (is_shown_) [[unlikely]] {
      is_shown_ = false;
      observer_.hide();
    }
  }

  TimeLimit limit_;
  bool has_begun_ = false;
  Deadline::Clock::time_point begin_;
  // Start of the current wait; if no caller waits, the time of the last check.
  Deadline::Clock::time_point waited_since_;
  std::chrono::milliseconds look_;
  Deadline next_look_ = Deadline::never();
  Deadline next_listening_ = Deadline::never();
  std::chrono::milliseconds stall_;
  std::chrono::milliseconds first_stall_;
  Deadline::Clock::time_point moved_;  // Time of the last arrival of data, or start of the wait.
  bool has_moved_ = false;             // Data has arrived since the last check.
  bool is_shown_ = false;
  Deadline next_stall_ = Deadline::never();
  Deadline next_interruption_ = Deadline::never();
  const Failure& failure_;
  const WaitObserver& observer_;
};

/// Number of polls before a wait sleeps.
struct WaitMode {
  int n_spins;   ///< Polls in a tight loop, about 40 ns each.
  int n_yields;  ///< Consecutive polls with a sched_yield in between, about 500 ns each.
};

/// Wait mode of a thread inside a call. If the node has fewer cores than ranks, the thread yields
/// at once.
[[nodiscard]] constexpr WaitMode calling_wait(bool has_cores) {
  return {.n_spins = has_cores ? SpinLimit::kMost : 1, .n_yields = 200};
}

/// Wait mode for a thread that runs beside the rank's computation, or for polls that cost a system
/// call.
inline constexpr WaitMode kBriefWait{.n_spins = 1, .n_yields = 20};

/// Result of one poll of the awaited condition.
enum class Look : std::uint8_t {
  kNothing,
  kProgress,  ///< Some data has arrived; more may follow at once.
  kDone
};

/// Polls in a tight loop, `n_spins` times or until `look` returns kDone. Returns the number of
/// polls before that.
template <class LookFunction>
int spin(int n_spins, LookFunction look) {
  for (int n = 0; n < n_spins; ++n) {
    if (n > 0) {
      pause_briefly();
    }
    if (look() == Look::kDone) {
      return n;
    }
  }
  return n_spins;
}

/// Waits until `look` or `sleep` returns kDone. Every wait for other ranks, in operations and in
/// messages, uses this function.
///
/// `sleep` publishes the sleep flag for the threads that can wake the sleeper, polls once more,
/// calls WaitMonitor::check(), then blocks, at most until the monitor's next check. After kNothing,
/// `sleep` is called again; after kProgress, the thread polls with yields first. `spin_limit`
/// adapts to waits that ended without a sleep; pass null if the wait does not predict later waits.
///
/// Throws the errors of `look` and `sleep`.
template <class LookFunction, class SleepFunction>
void wait(WaitMode mode, SpinLimit* spin_limit, LookFunction look, SleepFunction sleep) {
  if (const int n_vain = spin(mode.n_spins, look); n_vain < mode.n_spins) {
    if (n_vain > 0 && spin_limit != nullptr) {
      spin_limit->note_spun();
    }
    return;
  }
  for (bool has_slept = false;; has_slept = true) {
    for (int n_yields = 0; n_yields < mode.n_yields;) {
      const Look seen = look();
      if (seen == Look::kDone) {
        if (!has_slept && spin_limit != nullptr) {
          spin_limit->note_yielded(n_yields);
        }
        return;
      }
      if (seen == Look::kProgress) {
        n_yields = 0;
      } else {
        ::sched_yield();
        ++n_yields;
      }
    }
    Look seen = sleep();
    while (seen == Look::kNothing) {
      seen = sleep();
    }
    if (seen == Look::kDone) {
      return;
    }
  }
}

}  // namespace unisono::transport
