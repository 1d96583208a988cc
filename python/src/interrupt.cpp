#include "interrupt.h"

#include <pybind11/pybind11.h>

namespace unisono::python {
namespace {

bool is_python_ending() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

}  // namespace

void run_signal_handlers() {
  if (Py_IsInitialized() == 0 || is_python_ending()) {
    return;
  }
  const pybind11::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) {
    throw pybind11::error_already_set();
  }
}

}  // namespace unisono::python
