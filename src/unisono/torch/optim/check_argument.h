#pragma once

#include <sstream>
#include <string>

#include "unisono/base/error.h"

namespace unisono::optim {

/// Throws Error(kInvalidArgument), such as "StepLR: the step size must be positive", unless
/// `is_right`.
inline void check_argument(bool is_right, const std::string& who, const std::string& rule) {
  if (!is_right) {
    throw Error(ErrorCode::kInvalidArgument, who + ": " + rule);
  }
}

/// Throws Error(kInvalidArgument), such as "step_lr: step_size is 0; it must be positive", unless
/// `is_right`. `rule` is "positive" in this example.
template <class Value>
void check_value(bool is_right,
                 const std::string& who,
                 const std::string& name,
                 const Value& value,
                 const std::string& rule) {
  if (!is_right) {
    std::ostringstream text;
    text << name << " is " << value << "; it must be " << rule;
    check_argument(false, who, text.str());
  }
}

}  // namespace unisono::optim
