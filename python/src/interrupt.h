#pragma once

#include <utility>

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Runs Python's signal handlers if this is the main thread, and throws a handler's exception:
/// KeyboardInterrupt after Ctrl-C. Takes the GIL. Returns immediately while Python ends.
void run_signal_handlers();

/// Throws, once, the exception of a signal handler that has ended a wait on this thread.
void throw_raised();

/// Returns true when Python runs no thread other than the main thread any more.
[[nodiscard]] bool is_python_ending();

/// Makes the core's waits on the main thread run Python's signal handlers. An interrupted operation
/// fails with Error(kInterrupted), and throw_raised() rethrows the handler's exception.
void watch_for_signals();

/// For a catch block that cannot rethrow: Python prints its own exceptions as unraisable; other
/// exceptions are discarded.
void report_unraisable() noexcept;

/// Calls the function without the GIL; the thread may hold the GIL or not.
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
