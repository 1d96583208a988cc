#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/sample_votes.h"

namespace unisono::ddp {

/// A step whose gradients are weighted by the ranks' numbers of samples: what the reducer of a
/// model with weigh_samples has beside its buckets.
class WeightedStep {
 public:
  explicit WeightedStep(const ProcessGroup& group) : rank_(group.rank()) {}

  void begin(std::int64_t n_samples);

  /// This rank's samples, by which its gradients are multiplied.
  [[nodiscard]] std::int64_t n_samples() const { return vote_.n_samples; }

  /// A forward pass in training mode.
  void note_changed_buffers() { vote_.has_changed_buffers = true; }

  /// A backward pass begins. Throws Error(kInvalidArgument) outside of a step.
  void begin_pass() const;

  /// It is synchronized. Throws Error(kInvalidArgument) for the second such pass of a step.
  void synchronize();

  /// Throws Error(kInvalidArgument) when the step had no synchronized pass.
  void end();

  void leave() { is_on_ = false; }

  /// Puts this rank's vote into its elements of the first bucket.
  void vote(const at::Tensor& elements) const { write_vote(elements, rank_, vote_); }

  /// The first bucket is reduced.
  void read(const at::Tensor& elements) { votes_ = read_votes(elements); }

  /// Of the last step whose first bucket was reduced.
  [[nodiscard]] const std::optional<SampleVotes>& votes() const { return votes_; }

 private:
  [[noreturn]] void fail(const char* problem) const;

  int rank_;
  bool is_on_ = false;
  bool is_reduced_ = false;
  SampleVote vote_;
  std::optional<SampleVotes> votes_;
};

}  // namespace unisono::ddp
