#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "unisono/transport/stream.h"

namespace unisono::transport {

/// How ranks of different nodes reach each other: what UNISONO_TRANSPORT names.
///
/// Throws Error(kInvalidArgument) that names those that there are, and Error(kNotFound) where that
/// one can't be used here, with what to do about it.
[[nodiscard]] MakeStream find_streams(std::string_view name);

/// Adds streams of the program's own, for jobs that it joins from here on. `prepare` makes what
/// makes them, and throws Error(kNotFound) where they can't be used. Thread-safe.
///
/// Throws Error(kInvalidArgument) if there is no name, or one that others have.
void register_streams(std::string name, std::function<MakeStream()> prepare);

}  // namespace unisono::transport
