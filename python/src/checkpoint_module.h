#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds what checkpoints and the comparison of ranks are made of to the module.
void define_checkpoint(pybind11::module_& module);

}  // namespace unisono::python
