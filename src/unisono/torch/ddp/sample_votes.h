#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// What a rank tells the others of its part in a step.
struct SampleVote {
  std::int64_t n_samples = 0;        ///< None: it has no data left, or none for this step.
  bool has_changed_buffers = false;  ///< Its forward passes may have.
};

/// What all ranks know of a step.
struct SampleVotes {
  std::int64_t n_samples = 0;  ///< Of all ranks.
  int root = 0;                ///< The lowest rank that has any; 0 where none has.
  bool have_changed_buffers = false;
};

/// A vote is a whole number that 32-bit floats hold.
inline constexpr std::int64_t kMostSamples = (std::int64_t{1} << 23) - 1;

/// A rank's vote goes into its own of the world's elements, with zeros in the others, so that their
/// sum over the ranks has all votes.
void write_vote(const at::Tensor& elements, int rank, const SampleVote& vote);

/// Of the sum.
[[nodiscard]] SampleVotes read_votes(const at::Tensor& elements);

}  // namespace unisono::ddp
