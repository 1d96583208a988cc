#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds the class that quantizes the gradients of torch's DistributedDataParallel.
void define_quantizer(pybind11::module_& module);

}  // namespace unisono::python
