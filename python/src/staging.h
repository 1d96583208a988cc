#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"

#include "arguments.h"

namespace unisono::python {

/// The memory in which the core works on tensors: their own where they are contiguous, else a copy,
/// from which copy_back() brings the results. A tensor that can't be worked on is refused as the
/// call's argument.
class Staging {
 public:
  /// Of a call that takes no tensors.
  Staging() = default;

  explicit Staging(const Arguments& arguments) : arguments_(arguments) {}

  /// Holds the tensor's elements.
  Buffer input(const at::Tensor& tensor);
  std::vector<Buffer> inputs(at::TensorList tensors);

  /// Takes the tensor's elements.
  Buffer output(const at::Tensor& tensor);
  std::vector<Buffer> outputs(at::TensorList tensors);

  /// Both.
  Buffer in_out(const at::Tensor& tensor);

  /// What copy_back() does besides, when the operation's own memory has the results.
  void at_end(std::function<void()> step) { steps_.push_back(std::move(step)); }

  /// After the operation, on any thread.
  void copy_back();

 private:
  [[nodiscard]] Buffer buffer_of(const at::Tensor& tensor) const;
  void require_no_overlap(const at::Tensor& tensor) const;

  // Used only while the call begins.
  std::optional<Arguments> arguments_;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // Copy, tensor.
  std::vector<std::function<void()>> steps_;
};

}  // namespace unisono::python
