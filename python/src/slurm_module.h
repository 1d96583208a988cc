#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Adds slurm_job() and its result type to the module.
void define_slurm(pybind11::module_& module);

}  // namespace unisono::python
