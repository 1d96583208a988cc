#include "tensor_files_module.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"

#include "backend.h"
#include "backend_run.h"
#include "errors.h"

namespace unisono::python {
namespace {

namespace py = pybind11;
using Released = py::call_guard<py::gil_scoped_release>;

/// A Saver that is destroyed by an explicit call, because a traceback may keep the object alive
/// longer than the group.
class PythonSaver {
 public:
  PythonSaver(Backend& backend, const std::string& folder, int keep_last) : backend_(backend) {
    backend_.run_on_core([&](ProcessGroup& group, std::chrono::milliseconds timeout) {
      saver_ = std::make_unique<checkpoint::Saver>(
          group, folder, checkpoint::SaveOptions{.keep_last = keep_last, .timeout = timeout});
    });
  }

  std::string save(std::int64_t step,
                   const TensorState& common,
                   const TensorState& own,
                   const std::optional<std::string>& problem) {
    checkpoint::Saver& saver = open();
    const StateParts state = parts_on_all(common, own, problem);
    return with_translated_errors([&] { return saver.save(step, state.parts, state.common); });
  }

  void save_async(std::int64_t step,
                  const TensorState& common,
                  const TensorState& own,
                  const std::optional<std::string>& problem) {
    checkpoint::Saver& saver = open();
    const StateParts state = parts_on_all(common, own, problem);
    with_translated_errors([&] { saver.save_async(step, state.parts, state.common); });
  }

  void wait() {
    with_translated_errors([&] { open().wait(); });
  }

  void close() {
    const std::unique_ptr<checkpoint::Saver> closed = std::move(saver_);
    if (closed != nullptr) {
      with_translated_errors([&] { closed->wait(); });
    }
  }

 private:
  [[nodiscard]] checkpoint::Saver& open() {
    if (saver_ == nullptr) {
      reject("CheckpointSaver", "it is closed");
    }
    return *saver_;
  }

  // Returns the parts that this rank saves. Throws the same error on every rank if any rank has a
  // problem: a problem found in Python, or a tensor that cannot be saved.
  StateParts parts_on_all(const TensorState& common,
                          const TensorState& own,
                          const std::optional<std::string>& problem) {
    StateParts state;
    backend_.run_on_core([&](ProcessGroup& group, std::chrono::milliseconds timeout) {
      (void)checkpoint::do_on_all(group, timeout, [&]() -> std::string {
        if (problem) {
          throw Error(ErrorCode::kInvalidArgument, *problem);
        }
        return "";
      });
      state = parts_to_save(group, common, own);
    });
    return state;
  }

  Backend& backend_;  // kept alive by Python
  std::unique_ptr<checkpoint::Saver> saver_;
};

void save_file(const std::string& path, const TensorState& state) {
  with_translated_errors([&] { save_state(path, state); });
}

// Without a backend, a call of this process alone.
TensorState load_files(const std::string& path, Backend* backend) {
  if (backend == nullptr) {
    return with_translated_errors([&] { return load_state(path); });
  }
  TensorState state;
  backend->run_on_core([&](ProcessGroup& group, std::chrono::milliseconds /*timeout*/) {
    state = load_state(group, path);
  });
  return state;
}

std::optional<std::string> latest(const std::string& folder, bool allow_older, Backend* backend) {
  checkpoint::LatestOptions options{.allow_older = allow_older};
  if (backend == nullptr) {
    return with_translated_errors([&] { return checkpoint::latest_checkpoint(folder, options); });
  }
  std::optional<std::string> found;
  backend->run_on_core([&](ProcessGroup& group, std::chrono::milliseconds timeout) {
    options.timeout = timeout;
    found = checkpoint::latest_checkpoint(group, folder, options);
  });
  return found;
}

}  // namespace

void define_tensor_files(py::module_& module) {
  module.def("_save_state", &save_file, py::arg("path"), py::arg("state"), Released());
  module.def("_load_state", &load_files, py::arg("path"), py::arg("backend"), Released());
  module.def("_latest_checkpoint",
             &latest,
             py::arg("folder"),
             py::arg("allow_older"),
             py::arg("backend"),
             Released());
  py::class_<PythonSaver>(module, "_CheckpointSaver")
      .def(py::init<Backend&, const std::string&, int>(),
           py::arg("backend"),
           py::arg("folder"),
           py::arg("keep_last"),
           py::keep_alive<1, 2>(),
           Released())
      .def("save",
           &PythonSaver::save,
           py::arg("step"),
           py::arg("state"),
           py::arg("own"),
           py::arg("problem"),
           Released())
      .def("save_async",
           &PythonSaver::save_async,
           py::arg("step"),
           py::arg("state"),
           py::arg("own"),
           py::arg("problem"),
           Released())
      .def("wait", &PythonSaver::wait, Released())
      .def("close", &PythonSaver::close, Released());
}

}  // namespace unisono::python
