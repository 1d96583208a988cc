#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace bench {

/// Over the tensors' elements, one after the other, as 64 hexadecimal digits.
std::string sha256_of(const std::vector<at::Tensor>& tensors);

}  // namespace bench
