// The Python module unisono._C. Importing it needs torch to be imported before.
#include <chrono>
#include <string>
#include <vector>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "unisono/base/algorithm.h"

#include "backend.h"
#include "checkpoint_module.h"
#include "connect.h"
#include "interrupt.h"
#include "options.h"
#include "sampler_module.h"

namespace unisono::python {
namespace {

namespace py = pybind11;
using Timeout = std::chrono::milliseconds;

Algorithm algorithm_named(const std::string& name) {
  std::string known;
  for (const Algorithm algorithm : kAlgorithms) {
    if (name == to_string(algorithm)) {
      return algorithm;
    }
    known += (known.empty() ? "" : ", ") + std::string(to_string(algorithm));
  }
  throw py::value_error("there is no algorithm '" + name + "'; there are: " + known);
}

c10::intrusive_ptr<Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                         int rank,
                                         int size,
                                         Timeout timeout,
                                         const c10::intrusive_ptr<Options>& options,
                                         const std::vector<int>& parent_ranks,
                                         const c10::intrusive_ptr<Backend>& parent) {
  // Not by a guard of the whole call: pybind11 writes down the new object after it.
  const py::gil_scoped_release released;
  return c10::make_intrusive<Backend>(
      GroupPlan{.store = store,
                .rank = rank,
                .world_size = size,
                .timeout = timeout,
                .parent_ranks = parent_ranks,
                .parent = parent == nullptr ? nullptr : parent->group()},
      options);
}

void define_options(py::module_& module) {
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(module, "Options")
      .def(py::init([](Timeout timeout, const std::string& algorithm) {
             auto options = c10::make_intrusive<Options>(timeout);
             options->algorithm = algorithm_named(algorithm);
             return options;
           }),
           py::kw_only(),
           py::arg("timeout") = kBackendDefaultTimeout,
           py::arg("algorithm") = "auto")
      .def_property(
          "algorithm",
          [](const Options& options) { return std::string(to_string(options.algorithm)); },
          [](Options& options, const std::string& name) {
            options.algorithm = algorithm_named(name);
          });
}

void define_backend(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(py::init(&make_backend),
           py::kw_only(),
           py::arg("store"),
           py::arg("rank"),
           py::arg("size"),
           py::arg("timeout"),
           py::arg("options"),
           py::arg("parent_ranks") = std::vector<int>(),
           py::arg("parent") = c10::intrusive_ptr<Backend>())
      .def_property_readonly("options", &Backend::getBackendOptions)
      .def("_give_up", &Backend::give_up, Released())
      .def("_leave", &Backend::shutdown, Released());
}

}  // namespace
}  // namespace unisono::python

PYBIND11_MODULE(_C, module) {
  pybind11::module_::import("torch._C._distributed_c10d");
  module.doc() = "Unisono's backend of torch.distributed.";
  unisono::python::watch_for_signals();
  module.def("_hold_waiting_threads", &unisono::python::hold_waiting_threads);
  unisono::python::define_options(module);
  unisono::python::define_backend(module);
  unisono::python::define_checkpoint(module);
  unisono::python::define_sampler(module);
}
