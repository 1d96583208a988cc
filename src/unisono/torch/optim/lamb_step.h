#pragma once

#include <cstddef>

#include "unisono/torch/optim/adamw_step.h"

namespace unisono::optim {

/// One step of LAMB on the `count` elements of a layer, in two passes over them. The arrays do not
/// overlap. For float and double.
template <class T>
void lamb_step(T* parameter,
               const T* gradient,
               T* exp_avg,
               T* exp_avg_sq,
               std::size_t count,
               const AdamWConstants& constants);

}  // namespace unisono::optim
