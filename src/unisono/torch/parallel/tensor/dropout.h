#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace unisono::parallel {

/// A new seed, the same on all ranks: rank 0 of the group draws it from the generator of
/// torch::manual_seed(), and sends it. The others draw one, too, so that ranks which were seeded
/// alike still draw the same afterwards, as one process would. A collective operation.
[[nodiscard]] std::uint64_t shared_seed(ProcessGroup& group);

/// The tensor with each element, with probability `p`, set to 0, the others divided by 1 - p. What
/// is dropped of slice i along `dim` depends on `seed` and `first_slice + i` alone, so that ranks
/// which have different slices of a tensor drop what one rank would that has all.
[[nodiscard]] at::Tensor drop_in_slices(const at::Tensor& tensor,
                                        double p,
                                        std::int64_t dim,
                                        std::int64_t first_slice,
                                        std::uint64_t seed);

/// Throws Error(kInvalidArgument), with the layer's name, unless 0 <= p <= 1.
void check_probability(const char* layer, double p);

}  // namespace unisono::parallel
