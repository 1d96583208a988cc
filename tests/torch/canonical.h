#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono::testing {

/// The sum over ranks in the order that every all_reduce promises:
/// T[lo,hi) = T[lo,mid) + T[mid,hi), mid = lo + the largest power of two below hi - lo.
[[nodiscard]] at::Tensor canonical_sum(const std::vector<at::Tensor>& of_ranks);

/// Returns canonical_sum() divided by the number of ranks.
[[nodiscard]] at::Tensor canonical_mean(const std::vector<at::Tensor>& of_ranks);

/// Returns detached copies of tensors, for example of parameters.
[[nodiscard]] std::vector<at::Tensor> clone_all(const std::vector<at::Tensor>& tensors);

/// Returns copies of the tensors' gradients; undefined if a tensor has no gradient.
[[nodiscard]] std::vector<at::Tensor> clone_gradients(const std::vector<at::Tensor>& parameters);

/// Returns true if all tensors have the same types, sizes and bits. Undefined equals undefined.
[[nodiscard]] bool is_bit_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

/// Sets each parameter's gradient to the canonical mean of the gradients that `backward_of_shard`
/// produces for each shard from an empty gradient: one process that computes the results of
/// `n_shards` ranks.
void accumulate_shards(const std::vector<at::Tensor>& parameters,
                       int n_shards,
                       const std::function<void(int shard)>& backward_of_shard);

}  // namespace unisono::testing
