#include <cstddef>
#include <limits>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/samplers/sampler.h"

#include "support/throws_error.h"

namespace unisono {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Indices = std::vector<std::int64_t>;

std::vector<double> counts_of(const Indices& indices, std::size_t n_samples) {
  std::vector<double> counts(n_samples);
  for (const std::int64_t index : indices) {
    counts.at(static_cast<std::size_t>(index)) += 1;
  }
  return counts;
}

TEST(WeightedRandomSampler, DrawsSamplesByTheirWeights) {
  const std::vector<double> weights{1, 0, 3, 6, 0};
  const WeightedRandomSampler sampler(weights, 100'000, 1, 0);
  const std::vector<double> counts = counts_of(sampler.indices(), weights.size());
  EXPECT_NEAR(counts[0], 10'000, 500);
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[2], 30'000, 800);
  EXPECT_NEAR(counts[3], 60'000, 800);
  EXPECT_EQ(counts[4], 0);
}

TEST(WeightedRandomSampler, WithoutReplacementNoSampleComesTwice) {
  const std::vector<double> weights{1e-30, 5, 0, 1, 1e30, 2};
  for (std::int64_t epoch = 0; epoch < 100; ++epoch) {
    WeightedRandomSampler sampler(weights, 5, 1, 0, {.replacement = false});
    sampler.set_epoch(epoch);
    const Indices indices = sampler.indices();
    EXPECT_EQ(std::set<std::int64_t>(indices.begin(), indices.end()),
              (std::set<std::int64_t>{0, 1, 3, 4, 5}));
    EXPECT_EQ(indices.front(), 4);
    EXPECT_EQ(indices.back(), 0);
  }
}

TEST(WeightedRandomSampler, WithoutReplacementTheHeavyComeFirstAsOftenAsTheyWeigh) {
  int n_first = 0;
  for (std::int64_t epoch = 0; epoch < 10'000; ++epoch) {
    WeightedRandomSampler sampler({3, 1}, 2, 1, 0, {.replacement = false});
    sampler.set_epoch(epoch);
    n_first += sampler.indices().front() == 0 ? 1 : 0;
  }
  EXPECT_NEAR(n_first, 7'500, 200);
}

TEST(WeightedRandomSampler, WithoutReplacementEqualWeightsGiveEachOrderEquallyOften) {
  std::map<Indices, int> counts;
  for (std::int64_t epoch = 0; epoch < 12'000; ++epoch) {
    WeightedRandomSampler sampler({1, 1, 1}, 3, 1, 0, {.replacement = false});
    sampler.set_epoch(epoch);
    ++counts[sampler.indices()];
  }
  EXPECT_EQ(counts.size(), 6U);
  for (const auto& [order, count] : counts) {
    EXPECT_NEAR(count, 2'000, 200);
  }
}

TEST(WeightedRandomSampler, ReplicasShareOneOrder) {
  const std::vector<double> weights(50, 1.0);
  const Indices all = WeightedRandomSampler(weights, 30, 1, 0, {.seed = 4}).indices();
  for (int rank = 0; rank < 3; ++rank) {
    const Indices mine = WeightedRandomSampler(weights, 10, 3, rank, {.seed = 4}).indices();
    ASSERT_EQ(mine.size(), 10U);
    for (std::size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i], all[3 * i + static_cast<std::size_t>(rank)]);
    }
  }
}

TEST(WeightedRandomSampler, DrawsTheSameForTheSameSeedAndEpoch) {
  const std::vector<double> weights(100, 1.0);
  WeightedRandomSampler sampler(weights, 20, 1, 0);
  const Indices first = sampler.indices();
  EXPECT_EQ(sampler.indices(), first);
  sampler.set_epoch(1);
  EXPECT_NE(sampler.indices(), first);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.indices(), first);
  EXPECT_NE(WeightedRandomSampler(weights, 20, 1, 0, {.seed = 1}).indices(), first);
}

TEST(WeightedRandomSampler, ExplainsImpossibleArguments) {
  const auto message = [](const std::vector<double>& weights,
                          std::int64_t num_samples,
                          int num_replicas,
                          bool replacement) {
    const CaughtError error = error_of([&] {
      (void)WeightedRandomSampler(
          weights, num_samples, num_replicas, 0, {.replacement = replacement});
    });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_THAT(message({1, -2}, 1, 1, true), HasSubstr("the weight of sample 1 is -2"));
  EXPECT_THAT(message({std::numeric_limits<double>::infinity()}, 1, 1, true), HasSubstr("is inf"));
  EXPECT_THAT(message({1e308, 1e308}, 1, 1, true), HasSubstr("sum of the weights"));
  EXPECT_THAT(message({1}, -1, 1, true), HasSubstr("num_samples is -1"));
  EXPECT_THAT(message({1, 0, 1}, 3, 1, false),
              HasSubstr("1 replicas need 3 samples each, but only 2 of 3 can be drawn without"));
  EXPECT_THAT(message({1, 1, 1}, 2, 2, false), HasSubstr("2 replicas need 2"));
  EXPECT_THAT(message({0, 0}, 1, 1, true), HasSubstr("only 0 of 2 can be drawn"));
  EXPECT_THAT(message({}, 1, 1, true), HasSubstr("only 0 of 0"));
  EXPECT_THAT(message({1}, 1, 0, true), HasSubstr("num_replicas is 0"));
  EXPECT_THAT(WeightedRandomSampler({}, 0, 1, 0).indices(), IsEmpty());
}

}  // namespace
}  // namespace unisono
