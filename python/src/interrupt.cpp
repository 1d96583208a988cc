#include "interrupt.h"

#include <exception>
#include <utility>

#include <pybind11/pybind11.h>

#include "unisono/base/error.h"
#include "unisono/base/thread.h"

namespace unisono::python {
namespace {

// Not destroyed with the thread, because that may happen after the end of Python.
thread_local std::exception_ptr* raised = nullptr;

// Progress threads have no Python state: they neither run handlers nor wait for the GIL.
void check_signals() {
  if (Py_IsInitialized() == 0 || is_python_ending() || PyGILState_GetThisThreadState() == nullptr) {
    return;
  }
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) {
    if (raised == nullptr) {
      raised = new std::exception_ptr;
    }
    *raised = std::make_exception_ptr(pybind11::error_already_set());
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
  if (raised != nullptr && *raised != nullptr) {
    std::rethrow_exception(std::exchange(*raised, nullptr));
  }
}

void report_unraisable() noexcept {
  try {
    throw;
  } catch (pybind11::error_already_set& error) {
    const pybind11::gil_scoped_acquire acquire;
    error.discard_as_unraisable("unisono");
  } catch (...) {
    return;
  }
}

void watch_for_signals() {
  set_interruption_check(&check_signals);
}

}  // namespace unisono::python
