#include "unisono/torch/parallel/tensor/attention.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/dropout.h"
#include "unisono/torch/parallel/tensor/initial_values.h"
#include "unisono/torch/parallel/tensor/linear.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/parallel/tensor/regions.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {
namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();
constexpr int kHeadDim = 1;  // of scores

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

// `scores` are [batch, heads, sequence, sequence].
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
  // [3, batch, heads, sequence, head_size]
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

}  // namespace unisono::parallel
