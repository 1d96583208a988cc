#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/data/dataset.h"

namespace unisono {

struct LoaderTimingOptions {
  std::int64_t batch_size = 64;
  int prefetch_factor = 2;
  /// 0, 1, ... up to so many workers are tried.
  int max_workers = 1;
  /// For each number of workers, as often as the data set is gone through until then.
  std::chrono::nanoseconds duration = std::chrono::seconds(1);
};

/// How fast a loader was.
struct LoaderTiming {
  int num_workers = 0;
  double samples_per_second = 0;
};

/// Measures how fast a DataLoader with each number of workers brings the samples, in shuffled
/// order, to a consumer that does nothing else.
///
/// Throws Error(kInvalidArgument) for an empty data set and options that make no sense, and what
/// the data set throws.
[[nodiscard]] std::vector<LoaderTiming> time_loaders(const std::shared_ptr<const Dataset>& dataset,
                                                     const LoaderTimingOptions& options = {});

/// The fewest workers that are at most 5% slower than the fastest: more take cores from the
/// training, and gain nothing. `timings` is not empty.
[[nodiscard]] LoaderTiming best_timing(std::span<const LoaderTiming> timings);

}  // namespace unisono
