#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/pass_feature.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// A rank's part in a step, sent to the other ranks.
struct SampleVote {
  std::int64_t n_samples = 0;  ///< 0: the rank has no data left, or no data for this step.
  /// True if the rank's forward passes may have changed buffers.
  bool has_changed_buffers = false;
};

/// Sum of all ranks' votes of a step.
struct SampleVotes {
  std::int64_t n_samples = 0;  ///< Samples of all ranks.
  int root = 0;                ///< The lowest rank with samples; 0 if no rank has samples.
  bool have_changed_buffers = false;
};

/// Largest number of samples of a rank: the vote is a whole number that a 32-bit float represents
/// exactly.
inline constexpr std::int64_t kMostSamples = (std::int64_t{1} << 23) - 1;

/// Writes a rank's vote into the element of that rank, and zeros into the other elements, so that
/// the sum over the ranks holds all votes.
void write_vote(const at::Tensor& elements, int rank, const SampleVote& vote);

/// Reads all votes from the sum over the ranks.
[[nodiscard]] SampleVotes read_votes(const at::Tensor& elements);

/// Steps whose gradients are weighted by the ranks' numbers of samples, for models with
/// weigh_samples.
class WeightedSamples : public PassFeature {
 public:
  explicit WeightedSamples(PassContext& context);

  void check(const std::vector<NamedTensor>& parameters) const override;

  /// Throws Error(kInvalidArgument) outside of a step.
  void on_backward(bool is_synchronized, bool is_untouched) override;

  /// Throws Error(kInvalidArgument) for the second such pass of a step.
  void on_synchronize() override;

  /// Writes this rank's vote into the vote elements of the first bucket.
  void before_launch(std::size_t bucket) override;

  /// Reads the votes of all ranks.
  void wait() override;

  /// Begins a step with that many samples.
  void begin(std::int64_t n_samples);

  /// Records a forward pass in training mode, which may change buffers.
  void note_changed_buffers() { vote_.has_changed_buffers = true; }

  /// The passes are made. Throws Error(kInvalidArgument) when none was synchronized.
  void end();

  /// The step ends, whatever has become of it.
  void leave() { is_on_ = false; }

  /// Of the last step whose first bucket was reduced, the same on all ranks.
  [[nodiscard]] const SampleVotes& votes() const { return votes_; }

  /// Returns the votes of the last step in which any rank had samples, once.
  std::optional<SampleVotes> take_votes();

 private:
  [[noreturn]] void fail(const char* problem) const;

  PassContext& context_;
  bool is_on_ = false;
  bool is_reduced_ = false;
  SampleVote vote_;
  SampleVotes votes_;
  bool are_votes_taken_ = false;
};

}  // namespace unisono::ddp
