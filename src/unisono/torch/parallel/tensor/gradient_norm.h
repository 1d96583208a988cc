#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/parallel/tensor/divided_model.h"

namespace unisono::parallel {

/// Throws Error(kInvalidArgument) for a negative norm or an invalid norm type.
void check_clipping(double max_norm, const ClipOptions& options);

/// Returns the parameters that have a gradient. Throws Error(kInvalidArgument), with the name of
/// `caller`, for a gradient that is sparse.
[[nodiscard]] std::vector<PlacedTensor> with_gradients(std::vector<PlacedTensor> parameters,
                                                       const char* caller);

/// Returns the norm of the parameters' gradients over all ranks of their groups and of
/// `options.others`. Divided elements and elements that every rank of a group has count once each.
/// All parameters have a gradient. A collective operation.
[[nodiscard]] double norm_of_gradients(const std::vector<PlacedTensor>& parameters,
                                       const ClipOptions& options);

/// Scales the gradients so that `norm`, the norm of all gradients, becomes at most `max_norm`.
/// Throws Error(kInvalidArgument), without any change, for a non-finite norm if
/// options.error_if_nonfinite is set.
void clip_to_norm(const std::vector<at::Tensor>& gradients,
                  double norm,
                  double max_norm,
                  const ClipOptions& options);

}  // namespace unisono::parallel
