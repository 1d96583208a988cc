#include "unisono/torch/parallel/tensor/layers.h"

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/torch/parallel/tensor/functions.h"
#include "unisono/torch/parallel/tensor/random_values.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

void check_positive(const std::string& layer, const char* what, std::int64_t size) {
  if (size <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                layer + ": there are " + std::to_string(size) + " " + what +
                    "; there must be one at least");
  }
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const ColumnParallelLinearOptions& to_use,
                                                   std::shared_ptr<ProcessGroup> group,
                                                   const at::Generator& generator)
    : ParallelLayer("ColumnParallelLinear", std::move(group)), options(to_use) {
  check_positive(layer(), "input features", options.in_features);
  (void)share_of("output features", options.out_features);
  const Split rows{.dim = 0};
  const auto part = [&](at::IntArrayRef whole, double bound) {
    return part_of(draw_uniform(whole, bound, generator),
                   rows,
                   this->group()->rank(),
                   this->group()->world_size());
  };
  weight = register_parameter(
      "weight",
      part({options.out_features, options.in_features}, linear_weight_bound(options.in_features)));
  place("weight", {.split = rows});
  if (options.bias) {
    bias = register_parameter("bias",
                              part({options.out_features}, linear_bias_bound(options.in_features)));
    place("bias", {.split = rows});
  }
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& input) {
  check_last_dimension(input, options.in_features);
  const at::Tensor all = options.sequence_parallel ? gather_to_region(input, kSequenceDim, group())
                                                   : copy_to_region(input, group());
  const at::Tensor output = at::linear(all, weight, bias);
  return options.gather_output ? gather_from_region(output, -1, group()) : output;
}

RowParallelLinearImpl::RowParallelLinearImpl(const RowParallelLinearOptions& to_use,
                                             std::shared_ptr<ProcessGroup> group,
                                             const at::Generator& generator)
    : ParallelLayer("RowParallelLinear", std::move(group)), options(to_use) {
  check_positive(layer(), "output features", options.out_features);
  (void)share_of("input features", options.in_features);
  const Split columns{.dim = 1};
  weight = register_parameter("weight",
                              part_of(draw_uniform({options.out_features, options.in_features},
                                                   linear_weight_bound(options.in_features),
                                                   generator),
                                      columns,
                                      this->group()->rank(),
                                      this->group()->world_size()));
  place("weight", {.split = columns});
  if (options.bias) {
    bias = register_parameter(
        "bias",
        draw_uniform({options.out_features}, linear_bias_bound(options.in_features), generator));
    place("bias", {.has_partial_gradient = options.sequence_parallel});
  }
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& input) {
  check_last_dimension(input, options.input_is_split ? weight.size(1) : options.in_features);
  const at::Tensor mine = options.input_is_split ? input : scatter_to_region(input, -1, group());
  const at::Tensor terms = at::linear(mine, weight);
  const at::Tensor output = options.sequence_parallel
                                ? reduce_scatter_from_region(terms, kSequenceDim, group())
                                : reduce_from_region(terms, group());
  return bias.defined() ? output + bias : output;
}

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& to_use,
                                                       std::shared_ptr<ProcessGroup> group,
                                                       const at::Generator& generator)
    : ParallelLayer("VocabParallelEmbedding", std::move(group)), options(to_use) {
  (void)share_of("embeddings", options.num_embeddings);
  if (options.embedding_dim <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                layer() + ": embeddings of " + std::to_string(options.embedding_dim) +
                    " elements; there must be one at least");
  }
  const Split rows{.dim = 0};
  weight = register_parameter(
      "weight",
      part_of(draw_normal({options.num_embeddings, options.embedding_dim}, generator),
              rows,
              this->group()->rank(),
              this->group()->world_size()));
  place("weight", {.split = rows});
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& ids) {
  const auto refuse = [&](const std::string& problem) { return group()->refuse(layer(), problem); };
  if (!ids.defined() || (ids.scalar_type() != at::kLong && ids.scalar_type() != at::kInt)) {
    throw refuse("ids are " + (ids.defined() ? describe(ids) : std::string("undefined")) +
                 "; they must be i64 or i32");
  }
  if (ids.numel() > 0) {
    const auto [least, most] = at::aminmax(ids);
    const at::Tensor limits = at::stack({least, most}).cpu();  // One wait for a device.
    const auto lowest = limits[0].item<std::int64_t>();
    const auto highest = limits[1].item<std::int64_t>();
    if (lowest < 0 || highest >= options.num_embeddings) {
      throw refuse("id " + std::to_string(lowest < 0 ? lowest : highest) +
                   " is outside the vocabulary of " + std::to_string(options.num_embeddings));
    }
  }
  const std::int64_t n_mine = weight.size(0);
  const at::Tensor local = ids - group()->rank() * n_mine;
  const at::Tensor is_elsewhere = local.lt(0).logical_or_(local.ge(n_mine));
  const at::Tensor found = at::embedding(weight, local.masked_fill(is_elsewhere, 0))
                               .masked_fill(is_elsewhere.unsqueeze(-1), 0);
  return options.sequence_parallel ? reduce_scatter_from_region(found, kSequenceDim, group())
                                   : reduce_from_region(found, group());
}

ParallelLayerNormImpl::ParallelLayerNormImpl(const ParallelLayerNormOptions& to_use,
                                             std::shared_ptr<ProcessGroup> group)
    : ParallelLayer("ParallelLayerNorm", std::move(group)), options(to_use) {
  if (options.n_features <= 0) {
    throw Error(ErrorCode::kInvalidArgument,
                layer() + ": there are " + std::to_string(options.n_features) +
                    " features; there must be one at least");
  }
  weight = register_parameter("weight", at::ones({options.n_features}));
  bias = register_parameter("bias", at::zeros({options.n_features}));
  for (const char* const name : {"weight", "bias"}) {
    place(name, {.has_partial_gradient = options.sequence_parallel});
  }
}

at::Tensor ParallelLayerNormImpl::forward(const at::Tensor& input) {
  check_last_dimension(input, options.n_features);
  return at::layer_norm(input, {options.n_features}, weight, bias, options.eps);
}

namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();
constexpr int kHeadDim = 1;  // dimension of the heads in the scores

}  // namespace

ParallelSelfAttentionImpl::ParallelSelfAttentionImpl(const ParallelSelfAttentionOptions& to_use,
                                                     std::shared_ptr<ProcessGroup> group,
                                                     const at::Generator& generator)
    : ParallelLayer("ParallelSelfAttention", std::move(group)),
      options(to_use),
      n_heads_(share_of("heads", options.num_heads)) {
  const std::int64_t embed_dim = options.embed_dim;
  if (embed_dim <= 0 || embed_dim % options.num_heads != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                layer() + ": an embedding of " + std::to_string(embed_dim) +
                    " elements can't be divided equally among " +
                    std::to_string(options.num_heads) + " heads");
  }
  check_probability("ParallelSelfAttention", options.dropout);
  out_proj = register_module(
      "out_proj",
      RowParallelLinear(RowParallelLinearOptions{.in_features = embed_dim,
                                                 .out_features = embed_dim,
                                                 .bias = options.bias,
                                                 .sequence_parallel = options.sequence_parallel},
                        this->group(),
                        generator));
  const Split of_each{.dim = 0, .n_blocks = 3};
  in_proj_weight = register_parameter(
      "in_proj_weight",
      part_of(draw_uniform(
                  {3 * embed_dim, embed_dim}, xavier_bound(embed_dim, 3 * embed_dim), generator),
              of_each,
              this->group()->rank(),
              this->group()->world_size()));
  place("in_proj_weight", {.split = of_each});
  if (options.bias) {
    in_proj_bias = register_parameter("in_proj_bias",
                                      at::zeros({3 * n_heads_ * (embed_dim / options.num_heads)}));
    place("in_proj_bias", {.split = of_each});
    const c10::NoGradGuard no_grad;
    out_proj->bias.zero_();
  }
}

void ParallelSelfAttentionImpl::check(const at::Tensor& input, const AttentionMasks& masks) const {
  check_last_dimension(input, options.embed_dim);
  const auto refuse = [&](const std::string& problem) { return group()->refuse(layer(), problem); };
  if (input.dim() != 3) {
    throw refuse("the input is " + describe(input) + "; it must be [sequence, batch, embedding]");
  }
  const std::int64_t length =
      input.size(0) * (options.sequence_parallel ? group()->world_size() : 1);
  if (masks.attention.defined() && masks.attention.sizes() != at::IntArrayRef({length, length})) {
    throw refuse("the mask of attention is " + describe(masks.attention) + "; of a sequence of " +
                 std::to_string(length) + " it must have as many rows and columns");
  }
  if (masks.padding.defined() &&
      (masks.padding.scalar_type() != at::kBool ||
       masks.padding.sizes() != at::IntArrayRef({input.size(1), length}))) {
    throw refuse("the mask of padding is " + describe(masks.padding) + "; it must be bool[" +
                 std::to_string(input.size(1)) + ", " + std::to_string(length) + "]");
  }
}

// Applies the masks to `scores`, which are [batch, heads, sequence, sequence].
at::Tensor ParallelSelfAttentionImpl::masked(at::Tensor scores, const AttentionMasks& masks) const {
  if (options.causal) {
    const std::int64_t length = scores.size(-1);
    const at::Tensor is_later =
        at::ones({length, length}, scores.options().dtype(at::kBool).requires_grad(false)).triu(1);
    scores = scores.masked_fill(is_later, kMasked);
  }
  if (masks.attention.defined()) {
    scores = masks.attention.scalar_type() == at::kBool
                 ? scores.masked_fill(masks.attention, kMasked)
                 : scores + masks.attention.to(scores.scalar_type());
  }
  if (masks.padding.defined()) {
    scores = scores.masked_fill(masks.padding.unsqueeze(1).unsqueeze(1), kMasked);
  }
  return scores;
}

at::Tensor ParallelSelfAttentionImpl::forward(const at::Tensor& input,
                                              const AttentionMasks& masks) {
  check(input, masks);
  const at::Tensor all = options.sequence_parallel ? gather_to_region(input, kSequenceDim, group())
                                                   : copy_to_region(input, group());
  const std::int64_t length = all.size(0);
  const std::int64_t batch = all.size(1);
  const std::int64_t head_size = options.embed_dim / options.num_heads;
  // Shape: [3, batch, heads, sequence, head_size].
  const at::Tensor projected = at::linear(all, in_proj_weight, in_proj_bias)
                                   .view({length, batch, 3, n_heads_, head_size})
                                   .permute({2, 1, 3, 0, 4});
  const at::Tensor queries =
      projected.select(0, 0) * (1 / std::sqrt(static_cast<double>(head_size)));
  const at::Tensor scores = at::matmul(queries, projected.select(0, 1).transpose(-2, -1));
  at::Tensor weights = at::softmax(masked(scores, masks), -1);
  if (is_training() && options.dropout > 0) {
    weights = drop_in_slices(
        weights, options.dropout, kHeadDim, group()->rank() * n_heads_, shared_seed(*group()));
  }
  const at::Tensor mixed = at::matmul(weights, projected.select(0, 2))
                               .permute({2, 0, 1, 3})
                               .reshape({length, batch, n_heads_ * head_size});
  return out_proj(mixed);
}

namespace {

enum Place : std::int8_t { kAfterAttention, kInFeedForward, kAfterFeedForward };

std::uint64_t seed_of(std::uint64_t seed, int place) {
  return data::Random::of_sample(static_cast<std::int64_t>(seed), 1, place).next();
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
