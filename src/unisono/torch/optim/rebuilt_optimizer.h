#pragma once

#include <ATen/core/Tensor.h>

namespace unisono::optim {

/// Notices a loop that makes a new optimizer for each step, which so never has the momentum or
/// averages of earlier steps: nothing fails, but the training is another one. Warns once on each
/// thread.
///
/// To be called before a step; `parameter` is the first that it changes, `is_first` tells whether
/// the optimizer has no state yet.
void note_step(const at::Tensor& parameter, bool is_first);

}  // namespace unisono::optim
