#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace bench {

/// Returns the hash of the tensors' elements in order, as 64 hexadecimal digits.
std::string sha256_of(const std::vector<at::Tensor>& tensors);

}  // namespace bench
