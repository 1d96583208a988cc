#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds the classes behind ResumableSampler to the module.
void define_sampler(pybind11::module_& module);

}  // namespace unisono::python
