#pragma once

#include <string_view>

#include "unisono/transport/stream.h"

namespace unisono::transport {

/// How ranks of different nodes reach each other: what UNISONO_TRANSPORT names.
///
/// Throws Error(kInvalidArgument) that names those that there are, and Error(kNotFound) where that
/// one can't be used here, with what to do about it.
[[nodiscard]] MakeStream find_streams(std::string_view name);

}  // namespace unisono::transport
