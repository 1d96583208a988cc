#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

namespace unisono::report {

/// How fast something has gone over about the last half minute.
class RateMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RateMeter(Time start);

  /// Totals since the start.
  void note(Time now, std::int64_t n_steps, std::int64_t n_samples);

  struct Rates {
    double steps_per_second = 0;
    double samples_per_second = 0;
  };

  /// Zeros before the first step. What is noted last counts until `now`.
  [[nodiscard]] Rates rates(Time now) const;

 private:
  struct Mark {
    Time time;
    std::int64_t n_steps = 0;
    std::int64_t n_samples = 0;
  };

  std::deque<Mark> marks_;  // A second apart, the oldest first.
  Mark last_;
};

}  // namespace unisono::report
