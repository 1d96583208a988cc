#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds the functions for checkpoints and for the comparison of ranks to the module.
void define_checkpoint(pybind11::module_& module);

}  // namespace unisono::python
