#include "checkpoint_module.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/tensor/hash.h"

#include "backend.h"
#include "backend_run.h"
#include "errors.h"

namespace unisono::python {
namespace {

namespace py = pybind11;
using Timeout = std::chrono::milliseconds;

/// A file that is closed at the end of a `with` block, because a traceback may keep the object
/// alive longer.
class PythonFile {
 public:
  explicit PythonFile(const std::string& path)
      : file_(with_translated_errors([&] { return std::make_unique<AtomicFile>(path); })) {}

  [[nodiscard]] AtomicFile& open() {
    if (file_ == nullptr) {
      reject("_AtomicFile", "it is closed");
    }
    return *file_;
  }

  void close() { file_.reset(); }

 private:
  std::unique_ptr<AtomicFile> file_;
};

/// Calls function(bytes of the object) without the GIL.
template <class Function>
auto with_bytes(const py::buffer& object, Function&& function) {
  const py::buffer_info info = object.request();
  const std::span bytes(static_cast<const std::byte*>(info.ptr),
                        static_cast<std::size_t>(info.size * info.itemsize));
  const py::gil_scoped_release released;
  return function(bytes);
}

void share_problem(Backend& backend, const std::optional<std::string>& problem) {
  std::optional<Error> error;
  if (problem) {
    error = Error(ErrorCode::kInvalidArgument, *problem);
  }
  backend.run_on_core(
      [&](ProcessGroup& group, Timeout timeout) { share_outcome(group, error, timeout); });
}

void check_same_value(Backend& backend,
                      const std::string& who,
                      const std::string& what,
                      const std::string& value) {
  backend.run_on_core([&](ProcessGroup& group, Timeout timeout) {
    check_consistent(group, what, value, who, timeout);
  });
}

void check_same_tensors(Backend& backend,
                        const std::string& who,
                        const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<NamedTensor> named;
  named.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    named.push_back({.name = name, .tensor = tensor});
  }
  backend.run_on_core(
      [&](ProcessGroup& group, Timeout timeout) { check_consistent(group, named, who, timeout); });
}

}  // namespace

void define_checkpoint(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<PythonFile>(module, "_AtomicFile")
      .def(py::init<const std::string&>(), py::arg("path"), Released())
      .def("__enter__", [](PythonFile& file) -> PythonFile& { return file; })
      .def("__exit__", [](PythonFile& file, const py::args&) { file.close(); })
      .def(
          "write",
          [](PythonFile& file, const py::buffer& object) {
            with_bytes(object, [&](std::span<const std::byte> bytes) { file.open().write(bytes); });
          },
          py::arg("bytes"))
      .def(
          "commit",
          [](PythonFile& file) { with_translated_errors([&] { file.open().commit(); }); },
          Released());
  module.def(
      "_hash_bytes",
      [](const py::buffer& object, std::uint64_t seed) {
        return with_bytes(
            object, [&](std::span<const std::byte> bytes) { return hash_bytes(bytes, seed); });
      },
      py::arg("bytes"),
      py::arg("seed"));
  module.def("_format_hash", &format_hash, py::arg("hash"));
  module.def("_share_outcome", &share_problem, py::arg("backend"), py::arg("problem"), Released());
  module.def("_check_same_value",
             &check_same_value,
             py::arg("backend"),
             py::arg("who"),
             py::arg("what"),
             py::arg("value"),
             Released());
  module.def("_check_same_tensors",
             &check_same_tensors,
             py::arg("backend"),
             py::arg("who"),
             py::arg("tensors"),
             Released());
}

}  // namespace unisono::python
