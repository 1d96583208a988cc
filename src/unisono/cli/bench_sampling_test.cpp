#include "unisono/cli/bench_sampling.h"

#include <chrono>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::cli::bench {
namespace {

// One rank whose calls take as long as it is told, and which is told of slower ranks.
class FakeRanks final : public TimedRanks {
 public:
  FakeRanks(std::chrono::microseconds call, double slower_by)
      : call_(call), slower_by_(slower_by) {}

  void barrier() override { ++n_barriers; }

  void repeat(int n_calls) override {
    blocks.push_back(n_calls);
    const auto end = std::chrono::steady_clock::now() + n_calls * call_;
    while (std::chrono::steady_clock::now() < end) {
    }
  }

  void max_of_ranks(std::span<double> values) override {
    for (double& value : values) {
      value += slower_by_;
    }
  }

  int n_barriers = 0;
  std::vector<int> blocks;

 private:
  std::chrono::microseconds call_;
  double slower_by_;
};

TEST(BenchSampling, QuantilesAreSamples) {
  std::vector<double> seconds;
  for (int i = 200; i >= 1; --i) {
    seconds.push_back(i);
  }
  const Summary summary = summarize(seconds);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.median, 100);
  EXPECT_EQ(summary.p99, 198);
  EXPECT_EQ(summary.n_samples, 200);
  EXPECT_EQ(summarize({3, 1}).median, 1);
  EXPECT_EQ(summarize({3, 1}).p99, 3);
}

TEST(BenchSampling, LongCallsAreTimedOneByOne) {
  FakeRanks ranks(std::chrono::microseconds(500), 0);
  const Summary summary = sample(ranks, std::chrono::duration<double>(0.1));
  EXPECT_GE(summary.min, 500e-6);
  EXPECT_GE(summary.n_samples, 20);
  EXPECT_EQ(ranks.blocks.back(), 1);
  EXPECT_EQ(ranks.n_barriers, static_cast<int>(ranks.blocks.size()));
}

TEST(BenchSampling, ShortCallsShareASampleOf40Microseconds) {
  FakeRanks ranks(std::chrono::microseconds(4), 0);
  const Summary summary = sample(ranks, std::chrono::duration<double>(0.1));
  // Calls can only take longer than they are told, so a sample has at most 10, and more than 1
  // unless the machine stood still for the last half of the warm-up.
  EXPECT_GT(ranks.blocks.back(), 1);
  EXPECT_LE(ranks.blocks.back(), 10);
  EXPECT_GE(summary.min, 4e-6);
  EXPECT_GE(summary.median, summary.min);
  EXPECT_GE(summary.p99, summary.median);
}

TEST(BenchSampling, ThereAreAtLeast20SamplesHoweverShortTheTime) {
  FakeRanks ranks(std::chrono::microseconds(100), 0);
  EXPECT_EQ(sample(ranks, std::chrono::duration<double>(0)).n_samples, 20);
}

TEST(BenchSampling, TheSlowestRankCounts) {
  FakeRanks ranks(std::chrono::microseconds(1), 0.01);
  EXPECT_GE(sample(ranks, std::chrono::duration<double>(0)).min, 0.01);
}

}  // namespace
}  // namespace unisono::cli::bench
