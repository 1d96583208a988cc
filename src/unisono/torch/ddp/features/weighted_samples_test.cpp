#include "unisono/torch/ddp/features/weighted_samples.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace unisono::ddp {
namespace {

SampleVotes votes_of(const std::vector<SampleVote>& of_ranks, at::ScalarType type) {
  const auto n_ranks = static_cast<std::int64_t>(of_ranks.size());
  const at::Tensor sum = at::zeros({n_ranks}, type);
  for (int rank = 0; rank < static_cast<int>(n_ranks); ++rank) {
    const at::Tensor elements = at::full({n_ranks}, 99, type);  // Values of the previous step.
    write_vote(elements, rank, of_ranks[static_cast<std::size_t>(rank)]);
    sum.add_(elements);
  }
  return read_votes(sum);
}

TEST(SampleVotes, AddUpToAllSamplesAndTheLowestRankThatHasSome) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const SampleVotes votes = votes_of(
        {{}, {.n_samples = kMostSamples}, {.n_samples = 1}, {.n_samples = kMostSamples}}, type);
    EXPECT_EQ(votes.n_samples, 2 * kMostSamples + 1);
    EXPECT_EQ(votes.root, 1);
    EXPECT_FALSE(votes.have_changed_buffers);
  }
}

TEST(SampleVotes, TellOfOneRankThatHasChangedItsBuffers) {
  const SampleVotes votes = votes_of(
      {{.n_samples = 3}, {.n_samples = kMostSamples, .has_changed_buffers = true}}, at::kFloat);
  EXPECT_EQ(votes.n_samples, kMostSamples + 3);
  EXPECT_EQ(votes.root, 0);
  EXPECT_TRUE(votes.have_changed_buffers);
}

TEST(SampleVotes, OfRanksThatHaveNoneAreNone) {
  EXPECT_EQ(votes_of({{}, {}}, at::kFloat).n_samples, 0);
}

}  // namespace
}  // namespace unisono::ddp
