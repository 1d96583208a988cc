#pragma once

#include <pybind11/pybind11.h>

namespace unisono::python {

/// Puts the module's stores, and how ranks meet, into it.
void define_stores(pybind11::module_& module);

}  // namespace unisono::python
