#include "unisono/data/samplers/global_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::HasSubstr;

TEST(GlobalBatch, IsDividedOverTheRanks) {
  EXPECT_EQ(divide_batch(128, 2).per_rank, 64);
  EXPECT_EQ(to_string(divide_batch(128, 2)), "global batch 128: 64 on each of 2 ranks");
  EXPECT_EQ(to_string(divide_batch(128, 1)), "global batch 128: 128 on one rank");
}

TEST(GlobalBatch, ExplainsWhatIsNoMultipleOfTheRanks) {
  EXPECT_EQ(to_string(divide_batch(128, 3)),
            "global batch 126: 42 on each of 3 ranks (128 is no multiple of 3; 126 and 129 are)");
  EXPECT_EQ(divide_batch(128, 49).size(), 98);
}

TEST(GlobalBatch, IsWhatRanksWithBatchesOfTheirOwnMake) {
  EXPECT_EQ(to_string(GlobalBatch{.per_rank = 64, .world_size = 4}),
            "global batch 256: 64 on each of 4 ranks");
}

TEST(GlobalBatch, NeedsASampleForEachRank) {
  const CaughtError error = error_of([] { (void)divide_batch(3, 4); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("a global batch of 3 over 4 ranks"));
}

}  // namespace
}  // namespace unisono
