#include "unisono/torch/parallel/tensor/encoder_layer.h"

#include <cstdint>
#include <memory>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include "unisono/comm/process_group.h"
#include "unisono/data/random.h"
#include "unisono/torch/parallel/tensor/attention.h"
#include "unisono/torch/parallel/tensor/dropout.h"
#include "unisono/torch/parallel/tensor/layer_norm.h"
#include "unisono/torch/parallel/tensor/linear.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {
namespace {

enum Place : std::int8_t { kAfterAttention, kInFeedForward, kAfterFeedForward };

std::uint64_t seed_of(std::uint64_t seed, int place) {
  return Random::of_sample(static_cast<std::int64_t>(seed), 1, place).next();
}

}  // namespace

ParallelTransformerEncoderLayerImpl::ParallelTransformerEncoderLayerImpl(
    const ParallelTransformerEncoderLayerOptions& to_use,
    std::shared_ptr<ProcessGroup> group,
    const at::Generator& generator)
    : ParallelLayer("ParallelTransformerEncoderLayer", std::move(group)), options(to_use) {
  check_probability("ParallelTransformerEncoderLayer", options.dropout);
  const bool sequence_parallel = options.sequence_parallel;
  self_attn = register_module(
      "self_attn",
      ParallelSelfAttention(ParallelSelfAttentionOptions{.embed_dim = options.d_model,
                                                         .num_heads = options.nhead,
                                                         .dropout = options.dropout,
                                                         .causal = options.causal,
                                                         .sequence_parallel = sequence_parallel},
                            this->group(),
                            generator));
  linear1 = register_module(
      "linear1",
      ColumnParallelLinear(ColumnParallelLinearOptions{.in_features = options.d_model,
                                                       .out_features = options.dim_feedforward,
                                                       .gather_output = false,
                                                       .sequence_parallel = sequence_parallel},
                           this->group(),
                           generator));
  linear2 = register_module(
      "linear2",
      RowParallelLinear(RowParallelLinearOptions{.in_features = options.dim_feedforward,
                                                 .out_features = options.d_model,
                                                 .sequence_parallel = sequence_parallel},
                        this->group(),
                        generator));
  const ParallelLayerNormOptions norm{.n_features = options.d_model,
                                      .sequence_parallel = sequence_parallel};
  norm1 = register_module("norm1", ParallelLayerNorm(norm, this->group()));
  norm2 = register_module("norm2", ParallelLayerNorm(norm, this->group()));
}

at::Tensor ParallelTransformerEncoderLayerImpl::drop(const at::Tensor& tensor,
                                                     std::uint64_t seed,
                                                     int place) const {
  if (!is_training()) {
    return tensor;
  }
  const std::int64_t first = options.sequence_parallel ? group()->rank() * tensor.size(0) : 0;
  return drop_in_slices(tensor, options.dropout, kSequenceDim, first, seed_of(seed, place));
}

at::Tensor ParallelTransformerEncoderLayerImpl::feed_forward(const at::Tensor& input,
                                                             std::uint64_t seed) {
  const at::Tensor features = linear1(input);
  at::Tensor active =
      options.activation == Activation::kRelu ? at::relu(features) : at::gelu(features);
  if (is_training()) {
    const std::int64_t dim = active.dim() - 1;
    active = drop_in_slices(active,
                            options.dropout,
                            dim,
                            group()->rank() * active.size(dim),
                            seed_of(seed, kInFeedForward));
  }
  return drop(linear2(active), seed, kAfterFeedForward);
}

at::Tensor ParallelTransformerEncoderLayerImpl::forward(const at::Tensor& input,
                                                        const AttentionMasks& masks) {
  const std::uint64_t seed =
      is_training() && options.dropout > 0 ? shared_seed(*group()) : std::uint64_t{0};
  const auto attend = [&](const at::Tensor& x) {
    return drop(self_attn(x, masks), seed, kAfterAttention);
  };
  if (options.norm_first) {
    const at::Tensor between = input + attend(norm1(input));
    return between + feed_forward(norm2(between), seed);
  }
  const at::Tensor between = norm1(input + attend(input));
  return norm2(between + feed_forward(between, seed));
}

}  // namespace unisono::parallel
