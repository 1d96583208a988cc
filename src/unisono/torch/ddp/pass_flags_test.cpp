#include "unisono/torch/ddp/pass_flags.h"

#include <cstddef>
#include <vector>

#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "unisono/torch/ddp/features/replica_consistency.h"

namespace unisono::ddp {
namespace {

// Returns the flags that all ranks read after an all_reduce that averages the ranks' words.
PassFlags flags_of_mean(const std::vector<PassFlags>& of_ranks, at::ScalarType type) {
  const at::Tensor sum = at::zeros({kFlagBits}, at::kDouble);
  for (const PassFlags flags : of_ranks) {
    const at::Tensor elements = at::zeros({kFlagBits}, type);
    write_flags(elements, flags);
    sum.add_(elements.is_complex() ? at::real(elements) : elements);
  }
  return read_flags(sum.div_(static_cast<double>(of_ranks.size())).to(type));
}

class PassFlagsTest : public ::testing::TestWithParam<at::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(
    Types,
    PassFlagsTest,
    ::testing::Values(at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat));

TEST_P(PassFlagsTest, TellTheFlagsOfOneAmongManyRanks) {
  for (int bit = 0; bit < kFlagBits; ++bit) {
    std::vector<PassFlags> ranks(1000, 0);
    EXPECT_EQ(flags_of_mean(ranks, GetParam()), 0U);
    ranks[77] = PassFlags{1} << bit;
    EXPECT_EQ(flags_of_mean(ranks, GetParam()), PassFlags{1} << bit);
    ranks[500] = kGivenUp;
    EXPECT_EQ(flags_of_mean(ranks, GetParam()), (PassFlags{1} << bit) | kGivenUp);
  }
}

TEST_P(PassFlagsTest, FindOneFingerprintAmongManyThatDiffersInABit) {
  for (unsigned bit = 0; bit < 16; ++bit) {
    std::vector<PassFlags> ranks(1000, flags_of(0xA5C3));
    EXPECT_FALSE(do_fingerprints_differ(flags_of_mean(ranks, GetParam())));
    ranks[999] = flags_of(static_cast<std::uint16_t>(0xA5C3U ^ (1U << bit)));
    EXPECT_TRUE(do_fingerprints_differ(flags_of_mean(ranks, GetParam()))) << "bit " << bit;
  }
}

TEST_P(PassFlagsTest, ARankWithoutAFingerprintDiffersFromNone) {
  EXPECT_FALSE(do_fingerprints_differ(flags_of_mean({flags_of(3), 0, flags_of(3)}, GetParam())));
  EXPECT_TRUE(do_fingerprints_differ(flags_of_mean({flags_of(3), 0, flags_of(2)}, GetParam())));
}

// The word also contains a fingerprint and the flag of another feature.
TEST_P(PassFlagsTest, TellOfOneRankThatLacksGradients) {
  constexpr int kShift = 2;
  const PassFlags fingerprint = flags_of(0xFFFF) << kShift;
  std::vector<PassFlags> ranks(1000, fingerprint);
  EXPECT_EQ(flags_of_mean(ranks, GetParam()) & 2U, 0U);
  ranks[998] |= 2U;
  const PassFlags all = flags_of_mean(ranks, GetParam());
  EXPECT_EQ(all & 2U, 2U);
  EXPECT_EQ(all & kGivenUp, 0U);
  EXPECT_FALSE(do_fingerprints_differ(all >> kShift));
}

}  // namespace
}  // namespace unisono::ddp
