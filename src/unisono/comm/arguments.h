#pragma once

#include <string>
#include <string_view>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"

namespace unisono::comm {

/// The Error(kInvalidArgument) for a wrong argument of an operation on what `label` names.
[[nodiscard]] Error invalid(std::string_view operation,
                            const std::string& label,
                            const std::string& problem);

/// Throws invalid() for a buffer that no operation can use.
void check_buffer(const Buffer& buffer, std::string_view operation, const std::string& label);

}  // namespace unisono::comm
