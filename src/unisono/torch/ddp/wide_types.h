#pragma once

#include <string>
#include <vector>

#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Throws Error(kInvalidArgument) for parameters of other types than f32 and f64: "with `option`
/// parameters must be f32 or f64, `reason`".
void check_wide_types(const std::vector<NamedTensor>& parameters,
                      const std::string& option,
                      const std::string& reason);

}  // namespace unisono::ddp
