#include "unisono/transport/describe.h"

#include <numeric>

#include <gtest/gtest.h>

#include "unisono/base/reduction.h"

namespace unisono::transport {
namespace {

Descriptor of_blocks(OperationKind kind, std::uint32_t hint) {
  return {.kind = kind,
          .dtype = DType::kFloat32,
          .count = 12,
          .detail = BlockDetail{.fingerprint = 0xABCD, .hint = hint}.pack()};
}

TEST(Describe, SaysOfBlocksWhatTheDescriptorKnows) {
  EXPECT_EQ(describe(of_blocks(OperationKind::kAllGather, 4), 2),
            "all_gather #2 (f32[12] in blocks of 3, ...)");
  EXPECT_EQ(describe(of_blocks(OperationKind::kAllGather, 0), 2), "all_gather #2 (f32[12])");
  EXPECT_EQ(describe(of_blocks(OperationKind::kScatter, 0xFFFFFFFF), 2),
            "scatter #2 (f32[12] in blocks of different sizes, root 0)");
  EXPECT_EQ(describe(of_blocks(OperationKind::kAllReduceCoalesced, 5), 2),
            "all_reduce_coalesced #2 (f32[12] in 5 buffers, sum)");
}

TEST(Describe, SaysTheSizesOfBlocksThatAreKnown) {
  const Descriptor gather = of_blocks(OperationKind::kAllGather, 4);
  EXPECT_EQ(describe(gather, 2, std::vector<std::int64_t>{3, 4, 5}),
            "all_gather #2 (f32[12] in 3 blocks of 3, 4, 5)");
  EXPECT_EQ(describe(gather, 2, std::vector<std::int64_t>{4, 4, 4}),
            "all_gather #2 (f32[12] in 3 blocks of 4 each)");
  const Descriptor reduction = of_blocks(OperationKind::kAllReduceCoalesced, 1);
  EXPECT_EQ(describe(reduction, 2, std::vector<std::int64_t>{12}),
            "all_reduce_coalesced #2 (f32[12] in 1 buffer of 12, sum)");
  std::vector<std::int64_t> many(100);
  std::iota(many.begin(), many.end(), 0);
  EXPECT_EQ(describe(gather, 2, many),
            "all_gather #2 (f32[12] in 100 blocks of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, "
            "14, 15, ...)");
}

TEST(Describe, AMismatchShowsBlocksOnlyWhereTheyDiffer) {
  const std::vector<std::int64_t> even{4, 4, 4};
  const KnownCall one{"rank 0", 2, of_blocks(OperationKind::kAllGather, 0), even};
  KnownCall other{"rank 1", 2, of_blocks(OperationKind::kAllGather, 4), {3, 4, 5}};
  EXPECT_STREQ(mismatch(one, other).what(),
               "ranks called all_gather with different sizes: rank 0 called all_gather #2 (f32[12] "
               "in 3 blocks "
               "of 4 each), rank 1 called all_gather #2 (f32[12] in 3 blocks of 3, 4, 5)");
  other = {"rank 1", 2, one.descriptor, even};
  other.descriptor.dtype = DType::kFloat64;
  EXPECT_STREQ(
      mismatch(one, other).what(),
      "ranks called all_gather with different types: rank 0 called all_gather #2 (f32[12]), "
      "rank 1 called all_gather #2 (f64[12])");
}

TEST(Describe, AMismatchSaysWhatDiffers) {
  const Descriptor sum{.kind = OperationKind::kReduce, .dtype = DType::kFloat32, .count = 4};
  const auto says = [&](const Descriptor& other) {
    const std::string text = mismatch({"rank 0", 1, sum}, {"rank 1", 1, other}).what();
    return text.substr(0, text.find(':'));
  };
  Descriptor other = sum;
  other.root = 1;
  EXPECT_EQ(says(other), "ranks called reduce with different roots");
  other.count = 5;
  EXPECT_EQ(says(other), "ranks called reduce with different roots and sizes");
  other.dtype = DType::kFloat64;
  EXPECT_EQ(says(other), "ranks called reduce with different types, roots and sizes");
  other = sum;
  other.reduce = ReduceKind::kMax;
  EXPECT_EQ(says(other), "ranks called reduce with different reductions");
  other.kind = OperationKind::kAllReduce;
  EXPECT_EQ(says(other), "ranks called different operations");
}

KnownCall reduce_scatter(const char* who, std::uint32_t fingerprint) {
  KnownCall call{who, 2, of_blocks(OperationKind::kReduceScatter, 0), {4, 4, 4}};
  call.descriptor.reduce = ReduceKind::kPremulSum;
  call.descriptor.detail = BlockDetail{.fingerprint = fingerprint}.pack();
  return call;
}

TEST(Describe, AMismatchOfFactorsDoesNotBlameTheBlocks) {
  const KnownCall one = reduce_scatter("rank 0", 0xA);
  KnownCall other = reduce_scatter("rank 1", 0xB);
  const std::string text =
      "ranks called reduce_scatter with different parameters: rank 0 called reduce_scatter #2 "
      "(f32[12], premul_sum "
      "0000000a), rank 1 called reduce_scatter #2 (f32[12], premul_sum 0000000b)";
  EXPECT_EQ(mismatch(one, other).what(), text);
  // Like the descriptor of a rank on another node.
  other.counts.clear();
  EXPECT_EQ(mismatch(one, other).what(), text);
}

TEST(Describe, AMismatchShowsBlocksThatDifferOnlyBehindTheFirst) {
  KnownCall one{"rank 0", 2, of_blocks(OperationKind::kAllGather, 4), {3, 4, 5}};
  KnownCall other{"rank 1", 2, of_blocks(OperationKind::kAllGather, 4), {}};
  other.descriptor.detail = BlockDetail{.fingerprint = 1, .hint = 4}.pack();
  EXPECT_STREQ(
      mismatch(one, other).what(),
      "ranks called all_gather with different sizes: rank 0 called all_gather #2 (f32[12] in 3 "
      "blocks of 3, 4, 5), rank 1 called all_gather #2 (f32[12] in blocks of 3, ...)");
}

TEST(Describe, ARankProgressKnowsOfCollectiveOperationsOfOneGroup) {
  EXPECT_EQ(describe(RankProgress{}), "has called no collective operation of this group yet");
  const Descriptor barrier{.kind = OperationKind::kBarrier};
  EXPECT_EQ(describe(RankProgress{.sequence = 3, .descriptor = barrier}), "is in barrier #3");
  EXPECT_EQ(describe(RankProgress{.sequence = 3, .descriptor = barrier, .has_finished = true}),
            "has finished barrier #3 and called no collective operation of this group since");
  EXPECT_EQ(describe(RankProgress{.refused = "send: no"}),
            "has called no collective operation of this group yet, and refused a call for wrong "
            "arguments: \"send: no\"");
}

TEST(Describe, ARankProgressSaysFirstWhichMessageIsWaitedFor) {
  EXPECT_EQ(describe(RankProgress{.waits = "waits in recv (f32[8], from rank 1, tag 3)"}),
            "waits in recv (f32[8], from rank 1, tag 3), and has called no collective operation of "
            "this group yet");
}

TEST(Describe, ARankProgressSaysWhatTheRankDoesInOtherGroups) {
  EXPECT_EQ(describe(RankProgress{.sequence = 3,
                                  .descriptor = {.kind = OperationKind::kBarrier},
                                  .waits = "waits in recv (f32[8], from rank 1, tag 3)",
                                  .elsewhere = "is in barrier #7 of group 2 (ranks 0, 1)"}),
            "waits in recv (f32[8], from rank 1, tag 3), and is in barrier #7 of group 2 (ranks 0, "
            "1), and is in barrier #3");
}

}  // namespace
}  // namespace unisono::transport
