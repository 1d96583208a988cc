#include "unisono/data/samplers/sampler.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/samplers/distributed_sampler.h"

#include "support/throws_error.h"

namespace unisono {
namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Indices = std::vector<std::int64_t>;

TEST(BatchSampler, CutsTheSamplersIndicesIntoBatches) {
  EvaluationSampler in_order(7, 1, 0);
  EXPECT_THAT(BatchSampler(in_order, 3).batches(),
              ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}, Indices{6}));
  EXPECT_THAT(BatchSampler(in_order, 3, /*drop_last=*/true).batches(),
              ElementsAre(Indices{0, 1, 2}, Indices{3, 4, 5}));
  EXPECT_THAT(BatchSampler(in_order, 7, true).batches(), ElementsAre(::testing::SizeIs(7)));
  EXPECT_THAT(BatchSampler(in_order, 8, true).batches(), IsEmpty());
  EvaluationSampler nothing(0, 1, 0);
  EXPECT_THAT(BatchSampler(nothing, 2).batches(), IsEmpty());
}

TEST(BatchSampler, FollowsItsSamplersEpoch) {
  DistributedSampler sampler(10, 2, 0);
  BatchSampler batches(sampler, 2);
  EXPECT_THAT(batches.batches(), ElementsAre(Indices{4, 7}, Indices{3, 0}, Indices{6}));
  sampler.set_epoch(1);
  EXPECT_THAT(batches.batches(), ElementsAre(Indices{5, 1}, Indices{0, 9}, Indices{7}));
}

TEST(BatchSampler, ExplainsAnImpossibleSize) {
  EvaluationSampler sampler(7, 1, 0);
  EXPECT_THAT(error_of([&] { (void)BatchSampler(sampler, 0).batches(); }).message,
              HasSubstr("batch_size is 0"));
}

}  // namespace

namespace {

using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(EvaluationSampler, DealsEverySampleOnce) {
  for (const std::int64_t size : {0, 1, 2, 7, 100}) {
    for (const int num_replicas : {1, 2, 3, 8}) {
      std::vector<std::int64_t> all;
      for (int rank = 0; rank < num_replicas; ++rank) {
        const EvaluationSampler sampler(size, num_replicas, rank);
        const std::vector<std::int64_t> indices = sampler.indices();
        EXPECT_EQ(static_cast<std::int64_t>(indices.size()), sampler.num_samples());
        all.insert(all.end(), indices.begin(), indices.end());
      }
      std::ranges::sort(all);
      std::vector<std::int64_t> expected(static_cast<std::size_t>(size));
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected) << size << " samples, " << num_replicas << " replicas";
    }
  }
}

TEST(EvaluationSampler, FirstReplicasGetTheRest) {
  EXPECT_THAT(EvaluationSampler(5, 2, 0).indices(), ElementsAre(0, 2, 4));
  EXPECT_THAT(EvaluationSampler(5, 2, 1).indices(), ElementsAre(1, 3));
  EXPECT_THAT(EvaluationSampler(1, 2, 1).indices(), IsEmpty());
}

TEST(EvaluationSampler, ExplainsImpossibleArguments) {
  EXPECT_THAT(error_of([] { (void)EvaluationSampler(5, 2, 2); }).message,
              HasSubstr("EvaluationSampler: rank is 2"));
}

}  // namespace
}  // namespace unisono
