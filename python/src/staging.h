#pragma once

#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"

namespace unisono::python {

/// The memory in which the core works on tensors: their own where they are contiguous, else a copy,
/// from which copy_back() brings the results.
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

  /// `copies` are this operation's own, of the tensors' sizes: their elements become the tensors'.
  void add_copy(at::Tensor copy, at::Tensor tensor);

  /// After the operation, on any thread.
  void copy_back();

  [[nodiscard]] bool is_empty() const { return copies_.empty(); }

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // Copy, tensor.
};

}  // namespace unisono::python
