#pragma once

#include <string>

#include "unisono/base/error.h"

namespace unisono::optim {

/// Throws Error(kInvalidArgument), "StepLR: the step size must be positive", unless `is_right`.
inline void check_argument(bool is_right, const std::string& who, const std::string& rule) {
  if (!is_right) {
    throw Error(ErrorCode::kInvalidArgument, who + ": " + rule);
  }
}

}  // namespace unisono::optim
