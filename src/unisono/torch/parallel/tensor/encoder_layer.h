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
#include "unisono/torch/parallel/tensor/attention.h"
#include "unisono/torch/parallel/tensor/layer_norm.h"
#include "unisono/torch/parallel/tensor/linear.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {

enum class Activation : std::uint8_t { kRelu, kGelu };

struct ParallelTransformerEncoderLayerOptions {
  std::int64_t d_model;
  std::int64_t nhead;                   ///< A multiple of the ranks.
  std::int64_t dim_feedforward = 2048;  ///< A multiple of the ranks.
  double dropout = 0.1;
  Activation activation = Activation::kRelu;
  /// Norms come before attention and feedforward, not behind them.
  bool norm_first = false;
  bool causal = false;
  /// Input and output are this rank's part of the sequence, as is all that is not divided by heads
  /// and features: norms, dropout, sums.
  bool sequence_parallel = false;
};

/// torch::nn::TransformerEncoderLayer, divided among the ranks: attention by heads, feedforward by
/// features. Names, shapes of the whole and first values of its parameters are those of that
/// module. With sequence_parallel, sum_partial_gradients() is to come before each step.
///
/// Forward and backward send two all_reduces of activations each; with sequence_parallel two
/// all_gathers and two reduce_scatters, which move as many bytes.
class ParallelTransformerEncoderLayerImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) as its parts do.
  ParallelTransformerEncoderLayerImpl(const ParallelTransformerEncoderLayerOptions& to_use,
                                      std::shared_ptr<ProcessGroup> group,
                                      const at::Generator& generator = {});

  /// `input` is [sequence, batch, d_model], as the output is. A collective operation.
  at::Tensor forward(const at::Tensor& input, const AttentionMasks& masks = {});

  ParallelTransformerEncoderLayerOptions options;
  ParallelSelfAttention self_attn{nullptr};
  ColumnParallelLinear linear1{nullptr};
  RowParallelLinear linear2{nullptr};
  ParallelLayerNorm norm1{nullptr};
  ParallelLayerNorm norm2{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMasks())})

 private:
  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& input, std::uint64_t seed);
  // Of activations that are not divided by features; `place` tells a layer's dropouts apart.
  [[nodiscard]] at::Tensor drop(const at::Tensor& tensor, std::uint64_t seed, int place) const;
};

TORCH_MODULE(ParallelTransformerEncoderLayer);

}  // namespace unisono::parallel
