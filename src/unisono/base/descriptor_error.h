#pragma once

#include <string>

#include "unisono/base/error.h"

namespace unisono {

/// system_error() of a call that makes a file descriptor. Where the process may have no more of
/// them it says how many it may have, and what to do.
[[nodiscard]] Error descriptor_error(const std::string& what, int error_number);

}  // namespace unisono
