#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"

namespace unisono::python {

/// The memory in which the core works on tensors: their own where they are contiguous, else a copy,
/// from which copy_back() brings the results. Throws PyTorch's exceptions.
class Staging {
 public:
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
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // Copy, tensor.
  std::vector<std::function<void()>> steps_;
};

}  // namespace unisono::python
