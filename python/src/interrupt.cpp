#include "interrupt.h"

#include <pybind11/pybind11.h>

#include "unisono/base/error.h"
#include "unisono/base/interruption.h"

namespace unisono::python {
namespace {

bool is_python_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Progress threads have no Python state: they neither run handlers nor wait for the GIL.
void check_signals() {
  if (Py_IsInitialized() == 0 || is_python_ending() || PyGILState_GetThisThreadState() == nullptr) {
    return;
  }
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) {
    throw Error(ErrorCode::kInterrupted, "interrupted by a signal");
  }
}

}  // namespace

void run_signal_handlers() {
  try {
    check_signals();
  } catch (const Error&) {
    throw_current_exception();
  }
}

void throw_current_exception() {
  if (PyGILState_GetThisThreadState() == nullptr) {
    return;
  }
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_Occurred() != nullptr) {
    throw pybind11::error_already_set();
  }
}

void watch_for_signals() {
  set_interruption_check(&check_signals);
}

}  // namespace unisono::python
