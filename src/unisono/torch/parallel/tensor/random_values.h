#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace unisono::parallel {

// Initial values of a whole layer, from which a rank keeps a part, so that the values are the same
// on any number of ranks. The values equal the values of torch::nn layers and are drawn in the same
// order: a model has the values of the corresponding torch::nn model after torch::manual_seed()
// with the generator's seed.

/// Returns values drawn uniformly from -bound to bound.
[[nodiscard]] at::Tensor draw_uniform(at::IntArrayRef whole,
                                      double bound,
                                      const at::Generator& generator);

/// Returns normally distributed values with deviation 1.
[[nodiscard]] at::Tensor draw_normal(at::IntArrayRef whole, const at::Generator& generator);

/// Returns the bound for the weight of torch::nn::Linear.
[[nodiscard]] double linear_weight_bound(std::int64_t in_features);

/// Returns the bound for the bias of torch::nn::Linear.
[[nodiscard]] double linear_bias_bound(std::int64_t in_features);

/// Returns the bound of torch::nn::init::xavier_uniform_().
[[nodiscard]] double xavier_bound(std::int64_t fan_in, std::int64_t fan_out);

/// Returns a new seed, equal on all ranks. Rank 0 of the group draws the seed from the generator of
/// torch::manual_seed() and sends the seed to the other ranks. The other ranks advance the local
/// generator by one draw as well, so that ranks with equal seeds continue to draw equal numbers, as
/// a single process would. A collective operation.
[[nodiscard]] std::uint64_t shared_seed(ProcessGroup& group);

/// Returns the tensor with each element set to 0 with probability `p`, and the other elements
/// divided by 1 - p. The dropped elements of slice i along `dim` depend only on `seed` and
/// `first_slice + i`, so that ranks with different slices of a tensor drop the same elements as a
/// single rank with the whole tensor, on devices of the same kind.
[[nodiscard]] at::Tensor drop_in_slices(const at::Tensor& tensor,
                                        double p,
                                        std::int64_t dim,
                                        std::int64_t first_slice,
                                        std::uint64_t seed);

/// Throws Error(kInvalidArgument), with the layer's name, unless 0 <= p <= 1.
void check_probability(const char* layer, double p);

}  // namespace unisono::parallel
