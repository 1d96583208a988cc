#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/parallel/tensor/gradients.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {

/// Throws Error(kInvalidArgument) for what has no meaning.
void check_clipping(double max_norm, const ClipOptions& options);

/// Those that have a gradient. Throws Error(kInvalidArgument), in `caller`'s name, for one that is
/// sparse or not in CPU memory.
[[nodiscard]] std::vector<PlacedTensor> with_gradients(std::vector<PlacedTensor> parameters,
                                                       const char* caller);

/// Of the parameters' gradients, on all ranks of their groups and of `options.others`: what is
/// divided and what every rank of a group has count once each. All have one. A collective
/// operation.
[[nodiscard]] double norm_of_gradients(const std::vector<PlacedTensor>& parameters,
                                       const ClipOptions& options);

/// Scales the gradients such that `norm`, that of all, is `max_norm` at most. Throws
/// Error(kInvalidArgument), and has changed nothing, for one that is not finite where that is an
/// error.
void clip_to_norm(const std::vector<at::Tensor>& gradients,
                  double norm,
                  double max_norm,
                  const ClipOptions& options);

}  // namespace unisono::parallel
