#include "unisono/torch/ddp/pass_marks.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace unisono::ddp {
namespace {

// What an all_reduce that averages makes of the ranks' marks.
at::Tensor mean_of(const std::vector<PassMarks>& of_ranks, at::ScalarType type) {
  const at::Tensor sum = at::zeros({kMarkElems}, at::kDouble);
  for (const PassMarks& marks : of_ranks) {
    const at::Tensor elements = at::zeros({kMarkElems}, type);
    write_marks(elements, marks, 1);
    sum.add_(elements.is_complex() ? at::real(elements) : elements);
  }
  return sum.div_(static_cast<double>(of_ranks.size())).to(type);
}

class PassMarksTest : public ::testing::TestWithParam<at::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(
    Types,
    PassMarksTest,
    ::testing::Values(at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat));

TEST_P(PassMarksTest, TellTheWorstStatusOfManyRanks) {
  std::vector<PassMarks> ranks(1000);
  EXPECT_EQ(read_status(mean_of(ranks, GetParam())), PassStatus::kGood);
  ranks[77].status = PassStatus::kNonFinite;
  EXPECT_EQ(read_status(mean_of(ranks, GetParam())), PassStatus::kNonFinite);
  ranks[500].status = PassStatus::kGivenUp;
  EXPECT_EQ(read_status(mean_of(ranks, GetParam())), PassStatus::kGivenUp);
}

TEST_P(PassMarksTest, FindOneFingerprintAmongManyThatDiffersInABit) {
  for (unsigned bit = 0; bit < 16; ++bit) {
    std::vector<PassMarks> ranks(1000, {.fingerprint = std::uint16_t{0xA5C3}});
    EXPECT_FALSE(do_fingerprints_differ(mean_of(ranks, GetParam())));
    ranks[999].fingerprint = static_cast<std::uint16_t>(0xA5C3U ^ (1U << bit));
    EXPECT_TRUE(do_fingerprints_differ(mean_of(ranks, GetParam()))) << "bit " << bit;
  }
}

TEST_P(PassMarksTest, ARankWithoutAFingerprintDiffersFromNone) {
  EXPECT_FALSE(do_fingerprints_differ(mean_of(
      {{.fingerprint = std::uint16_t{3}}, {}, {.fingerprint = std::uint16_t{3}}}, GetParam())));
  EXPECT_TRUE(do_fingerprints_differ(mean_of(
      {{.fingerprint = std::uint16_t{3}}, {}, {.fingerprint = std::uint16_t{2}}}, GetParam())));
}

TEST_P(PassMarksTest, TellOfOneRankThatLacksGradients) {
  std::vector<PassMarks> ranks(1000, {.fingerprint = std::uint16_t{0xFFFF}});
  EXPECT_FALSE(is_any_lacking(mean_of(ranks, GetParam())));
  ranks[998].lacks_gradients = true;
  EXPECT_TRUE(is_any_lacking(mean_of(ranks, GetParam())));
  EXPECT_EQ(read_status(mean_of(ranks, GetParam())), PassStatus::kGood);
  EXPECT_FALSE(do_fingerprints_differ(mean_of(ranks, GetParam())));
}

}  // namespace
}  // namespace unisono::ddp
