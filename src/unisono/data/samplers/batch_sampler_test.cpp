#include "unisono/data/samplers/batch_sampler.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::error_of;
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
}  // namespace unisono
