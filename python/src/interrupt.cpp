#include "interrupt.h"

#include <utility>

#include <pybind11/pybind11.h>

#include "unisono/base/error.h"
#include "unisono/base/interruption.h"

namespace unisono::python {
namespace {

// What a handler has raised on this thread, until it is thrown: until then each wait ends at once.
// Not Python's current exception, which whatever is called meanwhile would stumble over.
thread_local pybind11::error_already_set* raised = nullptr;

// Progress threads have no Python state: they neither run handlers nor wait for the GIL.
void check_signals() {
  if (Py_IsInitialized() == 0 || is_python_ending() || PyGILState_GetThisThreadState() == nullptr) {
    return;
  }
  const pybind11::gil_scoped_acquire acquire;
  if (raised == nullptr && PyErr_CheckSignals() != 0) {
    raised = new pybind11::error_already_set;
  }
  if (raised != nullptr) {
    throw Error(ErrorCode::kInterrupted, "interrupted by a signal");
  }
}

}  // namespace

bool is_python_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

void run_signal_handlers() {
  try {
    check_signals();
  } catch (const Error&) {
    throw_raised();
  }
}

void throw_raised() {
  if (raised != nullptr) {
    const pybind11::error_already_set error = *raised;
    delete std::exchange(raised, nullptr);
    throw error;
  }
}

void watch_for_signals() {
  set_interruption_check(&check_signals);
}

}  // namespace unisono::python
