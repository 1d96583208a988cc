#pragma once

#include <signal.h>

#include <cstdint>

#include "unisono/base/crash/safe_text.h"

namespace unisono::crash {

/// Adds "SIGSEGV (address 0x10: not mapped)": what the signal says of itself, in words.
/// `stack_pointer` is the thread's, 0 where it isn't known. Async-signal-safe.
void add_cause(SafeText& text, const siginfo_t& info, std::uintptr_t stack_pointer);

}  // namespace unisono::crash
