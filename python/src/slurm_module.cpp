#include "slurm_module.h"

#include <pybind11/stl.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/launchers/slurm_job.h"

namespace unisono::python {

namespace py = pybind11;
using rendezvous::SlurmJob;

void define_slurm(py::module_& module) {
  py::class_<SlurmJob>(module, "SlurmJob")
      .def_readonly("hostnames", &SlurmJob::hostnames)
      .def_readonly("size", &SlurmJob::size)
      .def_readonly("rank", &SlurmJob::rank)
      .def_readonly("local_rank", &SlurmJob::local_rank)
      .def_readonly("cpus_per_task", &SlurmJob::cpus_per_task)
      .def_readonly("ntasks_per_node", &SlurmJob::ntasks_per_node)
      .def_readonly("tasks_of_nodes", &SlurmJob::tasks_of_nodes)
      .def_readonly("gpu_ids", &SlurmJob::gpu_ids);
  module.def("slurm_job", [] {
    try {
      return rendezvous::slurm_job(process_environment());
    } catch (const Error& error) {
      throw py::value_error(error.what());
    }
  });
}

}  // namespace unisono::python
