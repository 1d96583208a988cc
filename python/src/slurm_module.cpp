#include "slurm_module.h"

#include <string>

#include <pybind11/stl.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/local_rank.h"

namespace unisono::python {

namespace py = pybind11;
using rendezvous::SlurmJob;

namespace {

// Returns "SlurmJob(hostnames=['gpu05'], size=2, ...)" with all properties in the order of their
// definition.
std::string represent(const py::object& job) {
  std::string text;
  const py::object property = py::module_::import("builtins").attr("property");
  for (const auto& [name, attribute] : py::dict(py::type::of(job).attr("__dict__"))) {
    if (py::isinstance(attribute, property)) {
      text += (text.empty() ? "SlurmJob(" : ", ") + py::cast<std::string>(name) + "=" +
              py::cast<std::string>(py::repr(job.attr(name)));
    }
  }
  return text + ")";
}

}  // namespace

void define_slurm(py::module_& module) {
  py::class_<SlurmJob>(module, "SlurmJob")
      .def_readonly("hostnames", &SlurmJob::hostnames)
      .def_readonly("size", &SlurmJob::size)
      .def_readonly("rank", &SlurmJob::rank)
      .def_readonly("local_rank", &SlurmJob::local_rank)
      .def_readonly("cpus_per_task", &SlurmJob::cpus_per_task)
      .def_readonly("ntasks_per_node", &SlurmJob::ntasks_per_node)
      .def_readonly("tasks_of_nodes", &SlurmJob::tasks_of_nodes)
      .def_readonly("gpu_ids", &SlurmJob::gpu_ids)
      .def_readonly("master_addr", &SlurmJob::master_addr)
      .def_readonly("master_port", &SlurmJob::master_port)
      .def("__repr__", represent);
  module.def("slurm_job", [] {
    try {
      return rendezvous::slurm_job(process_environment());
    } catch (const Error& error) {
      throw py::value_error(error.what());
    }
  });
}

}  // namespace unisono::python
