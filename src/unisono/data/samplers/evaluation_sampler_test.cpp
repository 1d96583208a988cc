#include "unisono/data/samplers/evaluation_sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::error_of;
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
