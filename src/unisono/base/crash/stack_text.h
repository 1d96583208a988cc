#pragma once

#include <string>
#include <string_view>

#include "unisono/base/crash/raw_stack.h"

namespace unisono::crash {

/// Lines of a stack with what the source calls its functions, and at its end what would show more.
/// After a long one `headline` comes again, for who shows but the last lines of an output. Takes
/// memory and time, and loads a library: not in a process that must go on.
[[nodiscard]] std::string describe_stack(const RawStack& stack, std::string_view headline);

/// Writes lines of bare addresses to stderr. Async-signal-safe.
void write_addresses(const RawStack& stack, std::string_view headline);

}  // namespace unisono::crash
