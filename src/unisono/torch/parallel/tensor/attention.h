#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/pimpl.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/linear.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {

struct ParallelSelfAttentionOptions {
  std::int64_t embed_dim;
  std::int64_t num_heads;  ///< Of all ranks together: a multiple of them.
  double dropout = 0;      ///< Of the attention's weights.
  bool bias = true;
  bool causal = false;  ///< A position looks at itself and those before it only.
  /// Input and output are this rank's part of the sequence.
  bool sequence_parallel = false;
};

/// What a position does not look at, besides options.causal.
struct AttentionMasks {
  /// [sequence, sequence], true where row i must not look at column j; or numbers that are added to
  /// the scores.
  at::Tensor attention = {};
  /// [batch, sequence], true for positions that nobody looks at.
  at::Tensor padding = {};
};

/// torch::nn::MultiheadAttention of a sequence to itself, whose heads are divided among the ranks.
/// Names, shapes of the whole and first values of its parameters are those of that module; see
/// ColumnParallelLinear.
///
/// Dropout is the same on any number of ranks: see drop_in_slices().
class ParallelSelfAttentionImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) for heads that the ranks, or an embedding that the heads can't
  /// divide equally.
  ParallelSelfAttentionImpl(const ParallelSelfAttentionOptions& to_use,
                            std::shared_ptr<ProcessGroup> group,
                            const at::Generator& generator = {});

  /// `input` is [sequence, batch, embed_dim], as the output is. A collective operation.
  ///
  /// Throws RefusedCall for an input or masks that do not fit.
  at::Tensor forward(const at::Tensor& input, const AttentionMasks& masks = {});

  ParallelSelfAttentionOptions options;
  at::Tensor in_proj_weight;  ///< [3 * embed_dim / ranks, embed_dim]: queries, keys, values.
  at::Tensor in_proj_bias;    ///< [3 * embed_dim / ranks]; undefined without.
  RowParallelLinear out_proj{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMasks())})

 private:
  void check(const at::Tensor& input, const AttentionMasks& masks) const;
  [[nodiscard]] at::Tensor masked(at::Tensor scores, const AttentionMasks& masks) const;

  std::int64_t n_heads_;  // of this rank
};

TORCH_MODULE(ParallelSelfAttention);

}  // namespace unisono::parallel
