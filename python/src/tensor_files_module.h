#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds the functions for `_tensor_files.py`: tensors in safetensors files.
void define_tensor_files(pybind11::module_& module);

}  // namespace unisono::python
