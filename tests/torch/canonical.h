#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono::testing {

/// The sum over ranks in the order that every all_reduce promises:
/// T[lo,hi) = T[lo,mid) + T[mid,hi), mid = lo + the largest power of two below hi - lo.
[[nodiscard]] at::Tensor canonical_sum(const std::vector<at::Tensor>& of_ranks);

/// canonical_sum(), divided by the number of ranks.
[[nodiscard]] at::Tensor canonical_mean(const std::vector<at::Tensor>& of_ranks);

/// Detached copies, e.g. of parameters.
[[nodiscard]] std::vector<at::Tensor> clone_all(const std::vector<at::Tensor>& tensors);

/// Copies of the tensors' gradients; undefined where there is none.
[[nodiscard]] std::vector<at::Tensor> clone_gradients(const std::vector<at::Tensor>& parameters);

/// Whether all have the same types, sizes and bits; undefined equals undefined.
[[nodiscard]] bool is_bit_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b);

/// Sets each parameter's gradient to the canonical mean of what `backward_of_shard` leaves in it
/// for each shard, starting from no gradient: one process that does what `n_shards` ranks do.
void accumulate_shards(const std::vector<at::Tensor>& parameters,
                       int n_shards,
                       const std::function<void(int shard)>& backward_of_shard);

}  // namespace unisono::testing
