#pragma once

#include <chrono>
#include <span>
#include <vector>

namespace unisono::cli::bench {

/// Ranks that can be timed: Unisono's, and those of the peers that it is compared with.
class TimedRanks {
 public:
  TimedRanks() = default;
  virtual ~TimedRanks() = default;
  TimedRanks(const TimedRanks&) = delete;
  TimedRanks& operator=(const TimedRanks&) = delete;
  TimedRanks(TimedRanks&&) = delete;
  TimedRanks& operator=(TimedRanks&&) = delete;

  virtual void barrier() = 0;

  /// The call that is measured, `n_calls` times in a row.
  virtual void repeat(int n_calls) = 0;

  /// Makes each value the largest that any rank has of it, on every rank.
  virtual void max_of_ranks(std::span<double> values) = 0;
};

/// What a measurement found; times in seconds for one call.
struct Summary {
  double median = 0;
  double min = 0;
  double p99 = 0;  ///< Below 100 samples: the longest.
  int n_samples = 0;
};

/// Seconds of sorted or unsorted samples, of which there is at least one.
[[nodiscard]] Summary summarize(std::vector<double> seconds);

/// Measures for about `budget`; every rank calls it, and gets the same result.
///
/// A sample is a barrier and then one call, or, where a call takes less than 40 us, as many as take
/// that long, and their time divided by their number. The slowest rank's time counts. Before that
/// come calls that are not counted, for a fifth of the budget. There are 20 to 1000 samples.
[[nodiscard]] Summary sample(TimedRanks& ranks, std::chrono::duration<double> budget);

}  // namespace unisono::cli::bench
