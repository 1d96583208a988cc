#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace unisono::parallel {

// First values of a whole layer, of which a rank keeps its part: so they are the same on any number
// of ranks. They are those of torch::nn's layers, drawn in their order: a model has the values that
// the model of torch::nn's layers has after torch::manual_seed() of the generator's seed.

/// Uniform from -bound to bound.
[[nodiscard]] at::Tensor draw_uniform(at::IntArrayRef whole,
                                      double bound,
                                      const at::Generator& generator);

/// Normal, with deviation 1.
[[nodiscard]] at::Tensor draw_normal(at::IntArrayRef whole, const at::Generator& generator);

/// Of the weight of torch::nn::Linear.
[[nodiscard]] double linear_weight_bound(std::int64_t in_features);

/// Of the bias of torch::nn::Linear.
[[nodiscard]] double linear_bias_bound(std::int64_t in_features);

/// Of torch::nn::init::xavier_uniform_().
[[nodiscard]] double xavier_bound(std::int64_t fan_in, std::int64_t fan_out);

}  // namespace unisono::parallel
