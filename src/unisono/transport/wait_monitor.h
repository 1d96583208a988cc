#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/transport/failure.h"

namespace unisono::transport {

/// Hears of a wait that takes long, and makes its errors. Implemented by who knows the operation.
class WaitObserver {
 public:
  WaitObserver() = default;
  virtual ~WaitObserver() = default;
  WaitObserver(const WaitObserver&) = delete;
  WaitObserver& operator=(const WaitObserver&) = delete;
  WaitObserver(WaitObserver&&) = delete;
  WaitObserver& operator=(WaitObserver&&) = delete;

  /// The deadline passed while `late_ranks` were waited for.
  [[nodiscard]] virtual Error timed_out(std::span<const int> late_ranks) const = 0;

  /// One of `late_ranks` has left the group and will not come; nothing if none has. Called often.
  [[nodiscard]] virtual std::optional<Error> departed(std::span<const int> late_ranks) const = 0;

  /// The wait has lasted a while: time to hear whether another rank has given up, and set the
  /// failure that the wait looks at if so. Called about once a second.
  virtual void listen() const = 0;

  /// The wait has lasted a while: time to look whether `late_ranks` will come at all. Throws Error
  /// if not. Called ever more seldom.
  virtual void look_into(std::span<const int> late_ranks) const = 0;

  /// Since when somebody waits; nothing while nobody does. A wait that is older than the operation
  /// begins with it.
  [[nodiscard]] virtual std::optional<Deadline::Clock::time_point> waited_since() const {
    return Deadline::Clock::time_point::min();
  }

  /// Nothing has come since `since`, which is long; `late_ranks` are waited for now. Called about
  /// once a second until hide().
  virtual void show(Deadline::Clock::time_point /*since*/,
                    std::span<const int> /*late_ranks*/) const {}

  /// Something has come, or the wait is over.
  virtual void hide() const noexcept {}

  /// `waited` have passed, and more is to come.
  virtual void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const = 0;
};

/// How long one operation may wait, and what happens meanwhile. Time begins with the first call of
/// any, unless the limit has begun: an operation that need not sleep asks no clock.
class WaitMonitor {
 public:
  /// Reports a stall after `first_stall`, and again each time the wait has doubled. While nobody
  /// waits there is none.
  WaitMonitor(TimeLimit limit,
              std::chrono::milliseconds first_stall,
              const Failure& failure,
              const WaitObserver& observer);

  ~WaitMonitor() { hide(); }

  WaitMonitor(const WaitMonitor&) = delete;
  WaitMonitor& operator=(const WaitMonitor&) = delete;
  WaitMonitor(WaitMonitor&&) = delete;
  WaitMonitor& operator=(WaitMonitor&&) = delete;

  /// When a sleeping wait must call check() next, at the latest.
  [[nodiscard]] Deadline next_check();

  /// Throws the group's failure, what an interruption check throws, the departure of a rank that is
  /// waited for, or the timeout if the deadline has passed; reports a stall if one is due.
  /// `late_ranks` says for whom the caller waits now.
  void check(const std::function<std::vector<int>()>& late_ranks);

  /// Something has come, so nobody is as late as the operation is old. Asks no clock.
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
  Deadline::Clock::time_point waited_since_;  // Or the last time that nobody did.
  std::chrono::milliseconds look_;
  Deadline next_look_ = Deadline::never();
  Deadline next_listening_ = Deadline::never();
  std::chrono::milliseconds stall_;
  std::chrono::milliseconds first_stall_;
  Deadline::Clock::time_point moved_;  // When something came last, or the wait began.
  bool has_moved_ = false;             // Since the last check.
  bool is_shown_ = false;
  Deadline next_stall_ = Deadline::never();
  Deadline next_interruption_ = Deadline::never();
  const Failure& failure_;
  const WaitObserver& observer_;
};

}  // namespace unisono::transport
