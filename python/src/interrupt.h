#pragma once

#include <utility>

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Runs Python's signal handlers, if this is the main thread, and throws what they raise:
/// KeyboardInterrupt after Ctrl-C. Takes the GIL; does nothing while Python ends.
void run_signal_handlers();

/// Throws what a signal's handler has raised on this thread, if that ended a wait; once.
void throw_raised();

/// True once Python runs no more threads but the main one.
[[nodiscard]] bool is_python_ending();

/// From now on the core's waits on the main thread do the same: an operation that is interrupted so
/// fails with Error(kInterrupted), and throw_raised() has what the handler raised.
void watch_for_signals();

/// In a catch block that can't pass it on: has Python print an exception of its own; forgets
/// others.
void report_unraisable() noexcept;

/// Calls the function without the GIL, whether this thread holds it or not.
template <class Function>
void without_gil(Function&& function) {
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    const pybind11::gil_scoped_release release;
    std::forward<Function>(function)();
  } else {
    std::forward<Function>(function)();
  }
}

}  // namespace unisono::python
