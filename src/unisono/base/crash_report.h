#pragma once

#include <string>

namespace unisono {

/// Has this process write to stderr where it was before it dies of SIGSEGV, SIGABRT, SIGBUS, SIGFPE
/// or SIGILL: one line, which `name` begins ("rank 3"), says what has happened in words, and the
/// stack of that thread follows. It still dies of that signal, and dumps core as before.
///
/// A signal whose disposition is not the default when this is called first stays with whoever has
/// it, as do all of them in a program that was built with a sanitizer.
///
/// The calling thread gets a stack for the handler, unless it has one, so that it can report that
/// its own has overflowed. On other threads the handler runs on their own stack: all but that is
/// reported, and of an overflow the process dies as before. A thread that wants more calls this,
/// too.
///
/// May be called again. The name is the latest one then; where different threads have given
/// different ones, as ranks do that are threads of a process, it is "several ranks".
///
/// Functions and lines are looked up by elfutils' libdw.so.1 in a child process, which is killed
/// after five seconds: what remains then are addresses. Thread-safe. Never throws but for want of
/// memory.
void install_crash_reports(const std::string& name);

}  // namespace unisono
