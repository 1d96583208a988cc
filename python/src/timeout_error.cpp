#include "timeout_error.h"

#include <pybind11/pybind11.h>

namespace unisono::python {

void throw_timeout(const std::string& message, const std::vector<int>& ranks) {
  const pybind11::gil_scoped_acquire acquire;
  const pybind11::object type =
      pybind11::module_::import("torch.distributed").attr("DistBackendError");
  pybind11::object error = type(message);
  pybind11::list list;
  for (const int rank : ranks) {
    list.append(rank);
  }
  error.attr("ranks") = list;
  PyErr_SetObject(type.ptr(), error.ptr());
  throw pybind11::error_already_set();
}

}  // namespace unisono::python
