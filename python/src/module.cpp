// The Python module unisono._C. torch must be imported before this module.
#include <chrono>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"
#include "checkpoint_module.h"
#include "connect.h"
#include "exit_guard.h"
#include "gloo_backend.h"
#include "interrupt.h"
#include "options.h"
#include "progress_module.h"
#include "quantizer_module.h"
#include "sampler_module.h"
#include "slurm_module.h"
#include "store_module.h"
#include "symmetric.h"
#include "tensor_files_module.h"

namespace unisono::python {
namespace {

namespace py = pybind11;
using Timeout = std::chrono::milliseconds;

c10::intrusive_ptr<Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                         int rank,
                                         int size,
                                         Timeout timeout,
                                         const c10::intrusive_ptr<Options>& options,
                                         const std::vector<int>& parent_ranks,
                                         const c10::intrusive_ptr<Backend>& parent) {
  // The GIL is released here instead of by a guard of the whole call, because pybind11 registers
  // the new object after the call.
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
             options->set_algorithm(algorithm);
             return options;
           }),
           py::kw_only(),
           py::arg("timeout") = kBackendDefaultTimeout,
           py::arg("algorithm") = "auto")
      .def_property(
          "algorithm",
          [](const Options& options) { return to_string(options.algorithm()); },
          &Options::set_algorithm);
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
      .def_static("_leave_all", &Backend::leave_all, Released());
}

void define_gloo_backend(py::module_& module) {
  py::class_<GlooBackend, c10d::Backend, c10::intrusive_ptr<GlooBackend>>(module, "_GlooBackend")
      .def(py::init([](const c10::intrusive_ptr<c10d::Backend>& gloo) {
             return c10::make_intrusive<GlooBackend>(gloo);
           }),
           py::arg("gloo"))
      .def_property_readonly("wrapped_pg", &GlooBackend::gloo);
}

void define_symmetric_memory(py::module_& module) {
  module.def(
      "_empty",
      [](const Backend& backend, const std::vector<std::int64_t>& sizes, at::ScalarType type) {
        return symmetric_empty(*backend.group(), sizes, type);
      });
  module.def("_is_symmetric", [](const Backend& backend, const at::Tensor& tensor) {
    return is_symmetric(*backend.group(), tensor);
  });
  module.def("_move_buckets",
             [](Backend& backend, const c10d::Reducer& reducer, bool leaves_gradients_there) {
               const BucketMove move =
                   move_buckets(*backend.group(),
                                reducer,
                                leaves_gradients_there ? &backend.bucket_gradients() : nullptr);
               return std::tuple(move.n_buckets, move.n_symmetric, move.problem);
             });
}

}  // namespace
}  // namespace unisono::python

PYBIND11_MODULE(_C, module) {
  pybind11::module_::import("torch._C._distributed_c10d");
  module.doc() = "Unisono's backend of torch.distributed, and its stores.";
  unisono::python::watch_for_signals();
  module.def("_hold_waiting_threads", &unisono::python::hold_waiting_threads);
  unisono::python::define_stores(module);
  unisono::python::define_options(module);
  unisono::python::define_backend(module);
  unisono::python::define_gloo_backend(module);
  unisono::python::define_symmetric_memory(module);
  unisono::python::define_quantizer(module);
  unisono::python::define_checkpoint(module);
  unisono::python::define_tensor_files(module);
  unisono::python::define_sampler(module);
  unisono::python::define_progress(module);
  unisono::python::define_slurm(module);
}
