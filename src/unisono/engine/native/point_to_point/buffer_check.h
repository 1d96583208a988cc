#pragma once

#include <functional>
#include <string>

#include "unisono/base/buffer.h"

namespace unisono::engine {

/// A check, for later, that the buffer still holds what it does now: it throws
/// Error(kInvalidArgument) that begins with `who` if not. Reads the whole buffer both times, and
/// keeps it alive.
[[nodiscard]] std::function<void()> unchanged_check(const Buffer& buffer, std::string who);

}  // namespace unisono::engine
