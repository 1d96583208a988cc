#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <ratio>

namespace unisono {

/// A point in time by which something must have happened. Absolute, on the steady clock, so it can
/// be passed down through any number of waits without growing.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  /// `timeout` from now; a timeout of centuries is taken as "never" instead of overflowing.
  template <class Rep, class Period>
  [[nodiscard]] static Deadline after(std::chrono::duration<Rep, Period> timeout) {
    const Clock::time_point now = Clock::now();
    // In hours: no unit of time overflows there.
    using Hours = std::chrono::duration<double, std::ratio<3600>>;
    if (Hours(timeout) >= Hours(Clock::time_point::max() - now)) {
      return never();
    }
    return Deadline(now + std::chrono::duration_cast<Clock::duration>(timeout));
  }

  [[nodiscard]] static Deadline at(Clock::time_point time) { return Deadline(time); }

  [[nodiscard]] static Deadline never() { return Deadline(Clock::time_point::max()); }

  [[nodiscard]] Clock::time_point time() const { return time_; }

  [[nodiscard]] bool is_never() const { return time_ == Clock::time_point::max(); }

  [[nodiscard]] bool has_passed() const { return !is_never() && Clock::now() >= time_; }

  /// Time left, never negative.
  [[nodiscard]] std::chrono::nanoseconds remaining() const {
    if (is_never()) {
      return std::chrono::nanoseconds::max();
    }
    return std::max(std::chrono::nanoseconds::zero(),
                    std::chrono::nanoseconds(time_ - Clock::now()));
  }

  /// Time left as poll(2) and epoll_wait(2) take it: rounded up to milliseconds, -1 for never.
  [[nodiscard]] int poll_timeout_ms() const {
    if (is_never()) {
      return -1;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(remaining());
    return static_cast<int>(std::min<std::chrono::milliseconds::rep>(left.count(), 1'000'000'000));
  }

  /// The earlier of the two.
  [[nodiscard]] friend Deadline earlier(Deadline a, Deadline b) {
    return Deadline(std::min(a.time_, b.time_));
  }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}

  Clock::time_point time_;
};

/// How long something may take, from when somebody first asks for the deadline: who need not wait
/// asks no clock.
class TimeLimit {
 public:
  explicit TimeLimit(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  /// The same each time. The first call begins it.
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
