#include "sampler_module.h"

#include <cstdint>

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "unisono/data/samplers/distributed_sampler.h"

namespace unisono::python {

namespace py = pybind11;

void define_sampler(py::module_& module) {
  py::class_<SamplerState>(module, "_SamplerState")
      .def(py::init([](std::int64_t epoch,
                       std::int64_t n_consumed,
                       std::int64_t dataset_size,
                       std::int64_t seed,
                       bool shuffle) {
             return SamplerState{.epoch = epoch,
                                 .n_consumed = n_consumed,
                                 .dataset_size = dataset_size,
                                 .seed = seed,
                                 .shuffle = shuffle};
           }),
           py::kw_only(),
           py::arg("epoch"),
           py::arg("n_consumed"),
           py::arg("dataset_size"),
           py::arg("seed"),
           py::arg("shuffle"))
      .def_readonly("epoch", &SamplerState::epoch)
      .def_readonly("n_consumed", &SamplerState::n_consumed)
      .def_readonly("dataset_size", &SamplerState::dataset_size)
      .def_readonly("seed", &SamplerState::seed)
      .def_readonly("shuffle", &SamplerState::shuffle);
  // All errors concern arguments: std::runtime_error becomes RuntimeError.
  py::class_<ResumableSampler>(module, "_ResumableSampler")
      .def(py::init([](std::int64_t dataset_size,
                       int num_replicas,
                       int rank,
                       bool shuffle,
                       std::int64_t seed,
                       bool drop_last) {
             return ResumableSampler(dataset_size,
                                     num_replicas,
                                     rank,
                                     {.shuffle = shuffle, .seed = seed, .drop_last = drop_last});
           }),
           py::arg("dataset_size"),
           py::arg("num_replicas"),
           py::arg("rank"),
           py::arg("shuffle"),
           py::arg("seed"),
           py::arg("drop_last"))
      .def_property_readonly("epoch", &ResumableSampler::epoch)
      .def_property_readonly("state", &ResumableSampler::state)
      .def("load_state", &ResumableSampler::load_state, py::arg("state"))
      .def("set_epoch", &ResumableSampler::set_epoch, py::arg("epoch"))
      .def("advance", &ResumableSampler::advance, py::arg("n_samples"))
      .def("indices", &ResumableSampler::indices)
      .def("num_samples", &ResumableSampler::num_samples);
}

}  // namespace unisono::python
