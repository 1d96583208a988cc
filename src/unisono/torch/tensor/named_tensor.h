#pragma once

#include <string>

#include <ATen/core/Tensor.h>

namespace unisono {

/// A parameter or buffer, with its name in the module: "conv1.weight".
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

}  // namespace unisono
