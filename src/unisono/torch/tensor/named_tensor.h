#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono {

/// A parameter or buffer, with its name in the module: "conv1.weight".
struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// The tensors without their names.
[[nodiscard]] inline std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (const NamedTensor& one : named) {
    tensors.push_back(one.tensor);
  }
  return tensors;
}

}  // namespace unisono
