#pragma once

#include <functional>
#include <string>

#include "unisono/base/buffer.h"

namespace unisono::engine {

/// A check, for later, that the buffer still holds what it does now: it throws
/// Error(kInvalidArgument) that begins with `who` if not. Reads the whole buffer both times, and
/// keeps it alive.
[[nodiscard]] std::function<void()> unchanged_check(const Buffer& buffer, std::string who);

/// Lets the message of a receive go elsewhere, to memory that `buffer` has from now on. The check,
/// for later, puts it into the receive's own buffer, and then throws Error(kInvalidArgument) that
/// begins with `who` if somebody touched that before: until then it reads as NaN, all of its bits
/// are ones, and whole pages of it are guarded.
[[nodiscard]] std::function<void()> untouched_check(Buffer& buffer, std::string who);

}  // namespace unisono::engine
