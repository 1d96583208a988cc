#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <ratio>

namespace unisono {

/// The time at which a wait expires. The time is absolute, on the steady clock, so that nested
/// waits share one deadline. Immutable; any thread may use a copy.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// Returns the deadline `timeout` from now. A timeout that would overflow (centuries) becomes
  /// "never".
  template <class Rep, class Period>
  [[nodiscard]] static Deadline after(std::chrono::duration<Rep, Period> timeout) {
    const Clock::time_point now = Clock::now();
    // A double in hours cannot overflow for any unit of time.
    using Hours = std::chrono::duration<double, std::ratio<3600>>;
    if (Hours(timeout) >= Hours(Clock::time_point::max() - now)) {
      return never();
    }
    return Deadline(now + std::chrono::duration_cast<Clock::duration>(timeout));
  }

  /// Returns the deadline at a point of the steady clock.
  [[nodiscard]] static Deadline at(Clock::time_point time) { return Deadline(time); }

  /// Returns a deadline that never passes.
  [[nodiscard]] static Deadline never() { return Deadline(Clock::time_point::max()); }

  /// Returns the point of the steady clock; the latest possible point for never().
  [[nodiscard]] Clock::time_point time() const { return time_; }

  [[nodiscard]] bool is_never() const { return time_ == Clock::time_point::max(); }

  /// Reads the clock. Returns true if the deadline is not in the future.
  [[nodiscard]] bool has_passed() const { return !is_never() && Clock::now() >= time_; }

  /// Returns the time left, never negative. The maximum duration for never().
  [[nodiscard]] std::chrono::nanoseconds remaining() const {
    if (is_never()) {
      return std::chrono::nanoseconds::max();
    }
    return std::max(std::chrono::nanoseconds::zero(),
                    std::chrono::nanoseconds(time_ - Clock::now()));
  }

  /// Returns the time left as poll(2) and epoll_wait(2) expect it: rounded up to milliseconds, -1
  /// for never.
  [[nodiscard]] int poll_timeout_ms() const {
    if (is_never()) {
      return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining());
    return static_cast<int>(std::min<std::chrono::milliseconds::rep>(left.count(), 1'000'000'000));
  }

  /// Returns the earlier deadline.
  [[nodiscard]] friend Deadline earlier(Deadline a, Deadline b) {
    return Deadline(std::min(a.time_, b.time_));
  }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}

  Clock::time_point time_;
};

/// A time limit that starts with the first call of deadline(). A caller that does not have to wait
/// never reads the clock.
class TimeLimit {
 public:
  /// Does not start the time limit.
  explicit TimeLimit(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// Returns the same deadline at each call. The first call starts the time limit.
  [[nodiscard]] Deadline deadline() {
    if (!deadline_) {
      deadline_ = Deadline::after(timeout_);
    }
    return *deadline_;
  }

 private:
  std::chrono::milliseconds timeout_;
  std::optional<Deadline> deadline_;
};

}  // namespace unisono
