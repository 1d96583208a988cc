#include "unisono/data/loader_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/dataset.h"
#include "unisono/data/samplers/distributed_sampler.h"

namespace unisono {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kNearlyAsFast = 0.95;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

LoaderTiming time_loader(const std::shared_ptr<const Dataset>& dataset,
                         int num_workers,
                         const LoaderTimingOptions& options) {
  DataLoader loader(dataset,
                    {.batch_size = options.batch_size,
                     .num_workers = num_workers,
                     .prefetch_factor = options.prefetch_factor});
  DistributedSampler sampler(dataset->size(), 1, 0);
  const Clock::time_point start = Clock::now();
  std::int64_t n_samples = 0;
  for (std::int64_t epoch = 0; n_samples == 0 || Clock::now() - start < options.duration; ++epoch) {
    sampler.set_epoch(epoch);
    loader.start(sampler);
    // Stops within a pass: one over a large data set may take hours.
    do {
      const std::optional<Batch> batch = loader.next();
      if (!batch) {
        break;
      }
      n_samples += batch->size();
    } while (Clock::now() - start < options.duration);
  }
  return {.num_workers = num_workers,
          .samples_per_second = static_cast<double>(n_samples) / seconds_since(start)};
}

}  // namespace

std::vector<LoaderTiming> time_loaders(const std::shared_ptr<const Dataset>& dataset,
                                       const LoaderTimingOptions& options) {
  if (dataset == nullptr || dataset->size() < 1 || options.max_workers < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("time_loaders: {} samples, up to {} workers; there must be a sample, and "
                    "no negative number of workers",
                    dataset == nullptr ? 0 : dataset->size(),
                    options.max_workers));
  }
  std::vector<LoaderTiming> timings;
  for (int num_workers = 0; num_workers <= options.max_workers; ++num_workers) {
    timings.push_back(time_loader(dataset, num_workers, options));
  }
  return timings;
}

LoaderTiming best_timing(std::span<const LoaderTiming> timings) {
  const LoaderTiming fastest = std::ranges::max(timings, {}, &LoaderTiming::samples_per_second);
  LoaderTiming best = fastest;
  for (const LoaderTiming& timing : timings) {
    if (timing.num_workers < best.num_workers &&
        timing.samples_per_second >= kNearlyAsFast * fastest.samples_per_second) {
      best = timing;
    }
  }
  return best;
}

}  // namespace unisono
