#pragma once

#include <ATen/core/Tensor.h>

#include "unisono/data/batch.h"

namespace unisono {

struct BatchTensors {
  at::Tensor samples;  ///< [batch size, shape of a sample...]
  at::Tensor labels;   ///< [batch size], int64
};

/// A loader's batch as tensors over its own memory, which goes back to the loader when both are
/// gone. Copies nothing, unless the loader's options have pin_memory and there is an accelerator:
/// then the tensors are copies in page-locked memory.
[[nodiscard]] BatchTensors as_tensors(Batch batch);

}  // namespace unisono
