#include "quantizer_module.h"

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <torch/csrc/utils/pybind.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"

#include "backend.h"
#include "backend_run.h"
#include "interrupt.h"

namespace unisono::python {
namespace {

namespace py = pybind11;

constexpr std::array kTypes{std::pair("bfloat16", QuantizedType::kBFloat16),
                            std::pair("int8", QuantizedType::kInt8),
                            std::pair("fp8", QuantizedType::kFloat8)};

QuantizedType type_of(const std::string& name) {
  std::string known;
  for (const auto& [known_name, type] : kTypes) {
    if (name == known_name) {
      return type;
    }
    known += (known.empty() ? "" : ", ") + std::string(known_name);
  }
  throw std::invalid_argument("unisono.ddp.QuantizeState: there is no type '" + name +
                              "'; there are: " + known);
}

/// Applies quantize_hook() to the buckets of torch's reducer.
///
/// Owned by a Python QuantizeState. Used by one backward pass at a time, on the pass's thread,
/// without the GIL. Throws PyTorch's exceptions.
class Quantizer {
 public:
  Quantizer(c10::intrusive_ptr<Backend> backend, QuantizedType type)
      : backend_(std::move(backend)) {
    backend_->run_on_core([&](ProcessGroup&, std::chrono::milliseconds) {
      state_ = std::make_unique<QuantizeState>(backend_->group(), type);
    });
  }

  // Releases the GIL: leaving the group of the node's ranks may wait for other threads, which may
  // need the GIL.
  ~Quantizer() {
    if (::getpid() != pid_) {
      (void)state_.release();  // A child of fork() must not leave the group of its parent.
      return;
    }
    without_gil([this] { state_.reset(); });
  }

  Quantizer(const Quantizer&) = delete;
  Quantizer& operator=(const Quantizer&) = delete;
  Quantizer(Quantizer&&) = delete;
  Quantizer& operator=(Quantizer&&) = delete;

  // Starts to average the bucket's gradients. The call for the last bucket finishes all buckets in
  // ascending order, so that all ranks call the same operations.
  void average(const c10d::GradBucket& bucket) {
    backend_->run_on_core([&](ProcessGroup&, std::chrono::milliseconds timeout) {
      if (bucket.getIndex() == 0) {
        works_.clear();  // works of a pass that ended with an exception
      }
      works_.push_back(
          quantize_hook(*state_,
                        GradBucket({.index = bucket.getIndex(),
                                    .is_last = bucket.isLast(),
                                    .buffer = bucket.getBuffer(),
                                    .gradients = bucket.getGradients(),
                                    .parameters = bucket.getParameters(),
                                    .label = "gradient bucket " + std::to_string(bucket.getIndex()),
                                    .timeout = timeout})));
      if (bucket.isLast()) {
        finish();
      }
    });
  }

 private:
  void finish() {
    std::vector<BucketWork> works = std::exchange(works_, {});
    while (!works.empty()) {
      for (const BucketWork& work : works) {
        work.work.wait();
      }
      std::erase_if(works, [](const BucketWork& work) { return !work.then; });
      for (BucketWork& work : works) {
        work = std::exchange(work.then, {})();
      }
    }
  }

  c10::intrusive_ptr<Backend> backend_;
  pid_t pid_ = ::getpid();
  std::unique_ptr<QuantizeState> state_;
  std::vector<BucketWork> works_;
};

}  // namespace

void define_quantizer(py::module_& module) {
  py::class_<Quantizer>(module, "_Quantizer")
      .def(py::init([](c10::intrusive_ptr<Backend> backend, const std::string& type) {
             const QuantizedType quantized = type_of(type);
             const py::gil_scoped_release released;
             return std::make_unique<Quantizer>(std::move(backend), quantized);
           }),
           py::arg("backend"),
           py::arg("type"))
      .def("average",
           &Quantizer::average,
           py::arg("bucket"),
           py::call_guard<py::gil_scoped_release>());
}

}  // namespace unisono::python
