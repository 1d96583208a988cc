#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds the classes behind Progress to the module.
void define_progress(pybind11::module_& module);

}  // namespace unisono::python
