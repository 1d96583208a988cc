#pragma once

#include "unisono/base/deadline.h"

namespace unisono {

/// Looks whether the program wants the calling thread's wait to end, and throws then, best
/// Error(kInterrupted).
using InterruptionCheck = void (*)();

/// Has threads that wait in an operation call `check` about ten times a second, such as where a
/// language looks for its signals. An operation that ends so closes its group. Null: they just
/// wait. Thread-safe; for the process.
void set_interruption_check(InterruptionCheck check) noexcept;

/// When a wait has to look for the first time, or again; never, where there is nothing to look for.
[[nodiscard]] Deadline next_interruption_check();

/// Calls the check, if there is one, and passes on what it throws.
void check_interruption();

/// Sleeps until `deadline`, and looks meanwhile: passes on what the check throws.
void interruptible_sleep_until(Deadline deadline);

}  // namespace unisono
