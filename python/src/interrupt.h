#pragma once

#include <utility>

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Runs Python's signal handlers, if this is the main thread, and throws what they raise:
/// KeyboardInterrupt after Ctrl-C. Takes the GIL; does nothing while Python ends.
void run_signal_handlers();

/// Throws Python's current exception, if this thread has one.
void throw_current_exception();

/// From now on the core's waits on the main thread do the same: an operation that is interrupted so
/// fails with Error(kInterrupted), and what the handler raised is Python's current exception.
void watch_for_signals();

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
