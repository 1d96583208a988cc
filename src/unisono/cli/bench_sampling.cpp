#include "unisono/cli/bench_sampling.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace unisono::cli::bench {
namespace {

constexpr double kShortestSample = 40e-6;
constexpr double kMaxCallsInSample = 10000;
constexpr double kMinSamples = 20;
constexpr double kMaxSamples = 1000;
constexpr double kWarmUpShare = 0.2;

double time_calls(TimedRanks& ranks, int n_calls) {
  ranks.barrier();
  const auto start = std::chrono::steady_clock::now();
  ranks.repeat(n_calls);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds for a call.
struct Estimate {
  double shortest = 0;
  double mean = 0;
};

// Calls in growing blocks until `seconds` are over. Every rank makes as many calls as the others,
// since all go by the time of the slowest.
Estimate warm_up(TimedRanks& ranks, double seconds) {
  constexpr double kLeast = 1e-9;
  constexpr int kMaxCalls = 1 << 20;
  Estimate estimate{.shortest = std::numeric_limits<double>::max(), .mean = 0};
  double total = 0;
  double n_total = 0;
  for (int n_calls = 1; n_calls <= 2 || total < seconds;
       n_calls = std::min(2 * n_calls, kMaxCalls)) {
    double block = time_calls(ranks, n_calls);
    ranks.max_of_ranks(std::span(&block, 1));
    total += block;
    n_total += n_calls;
    estimate.shortest = std::max(std::min(estimate.shortest, block / n_calls), kLeast);
  }
  estimate.mean = total / n_total;
  return estimate;
}

}  // namespace

Summary summarize(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  // The least sample that has a share `quantile` of all at or below it.
  const auto at = [&seconds](double quantile) {
    const double position = std::ceil(quantile * static_cast<double>(seconds.size()));
    return seconds[static_cast<std::size_t>(std::max(position, 1.0)) - 1];
  };
  return {.median = at(0.5),
          .min = seconds.front(),
          .p99 = at(0.99),
          .n_samples = static_cast<int>(seconds.size())};
}

Summary sample(TimedRanks& ranks, std::chrono::duration<double> budget) {
  const Estimate call = warm_up(ranks, kWarmUpShare * budget.count());
  const double n_calls =
      std::clamp(std::ceil(kShortestSample / call.shortest), 1.0, kMaxCallsInSample);
  const double n_samples =
      std::clamp(budget.count() / (n_calls * call.mean), kMinSamples, kMaxSamples);
  std::vector<double> seconds(static_cast<std::size_t>(n_samples));
  for (double& time : seconds) {
    time = time_calls(ranks, static_cast<int>(n_calls)) / n_calls;
  }
  ranks.max_of_ranks(seconds);
  return summarize(std::move(seconds));
}

}  // namespace unisono::cli::bench
