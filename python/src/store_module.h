#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds the stores and the functions for meeting ranks to the module.
void define_stores(pybind11::module_& module);

}  // namespace unisono::python
