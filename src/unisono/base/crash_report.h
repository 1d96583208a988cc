#pragma once

#include <signal.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace unisono {

/// Installs handlers that report a fatal SIGSEGV, SIGABRT, SIGBUS, SIGFPE or SIGILL of this process
/// to stderr within 12 seconds: a line with `name` ("rank 3") and the cause in words, then the
/// stack of the crashing thread. The process still dies of that signal and dumps core as before.
///
/// A signal that has a handler at the first call keeps that handler. The function has no effect in
/// a program that was built with a sanitizer.
///
/// The calling thread gets an alternate signal stack unless the thread already has one, so that a
/// stack overflow is reported. In other threads a stack overflow ends the process without a report.
///
/// The latest name counts. If different threads set different names, as ranks that are threads of
/// one process do, the name becomes "several ranks". Thread-safe. Throws only if memory is
/// exhausted.
void install_crash_reports(const std::string& name);

// Functions for signal handlers: they allocate no memory. A result is valid until the next call.
// Only a single thread may call the functions at a time.

/// Returns the first line of a crash report, with a newline: "[unisono rank 3] pid 4123 (thread
/// train): SIGSEGV (address 0x10: not mapped)". `stack_pointer` is the thread's stack pointer, 0 if
/// unknown.
[[nodiscard]] std::string_view crash_headline(const char* name,
                                              const siginfo_t& info,
                                              std::uintptr_t stack_pointer);

/// Returns one line for each frame of a stack from take_stack(), and a hint on how to get more
/// details. addr2line (of binutils or elfutils) finds functions and lines, in a single run for each
/// file of code, within five seconds. A file that was replaced after loading has no lines.
[[nodiscard]] std::string_view crash_stack(std::span<void* const> stack);

}  // namespace unisono
