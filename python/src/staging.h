#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"
#include "unisono/torch/device/tensor_mirror.h"

#include "arguments.h"

namespace unisono::python {

/// Tensors that an operation uses in place of the caller's tensors: the same tensors if they are
/// contiguous, otherwise contiguous copies. copy_back() copies the results from the copies. Tensors
/// without strides or outside the CPU are passed unchanged. Not thread-safe.
class PlainTensors {
 public:
  /// Returns true if the tensor needs a copy.
  [[nodiscard]] static bool must_copy(const at::Tensor& tensor);

  /// Returns the elements of an input tensor, in a form that the operation can use.
  [[nodiscard]] static at::Tensor input(const at::Tensor& tensor);

  /// Returns a tensor that receives the elements of an output. Throws PyTorch's exception for a
  /// tensor with overlapping elements.
  [[nodiscard]] at::Tensor output(const at::Tensor& tensor);

  /// Returns a tensor with the elements of an input that also receives the result. Throws the
  /// errors of output().
  [[nodiscard]] at::Tensor in_out(const at::Tensor& tensor);

  /// Returns true if copy_back() has no results to copy.
  [[nodiscard]] bool is_empty() const { return copies_.empty(); }

  /// Copies the results. Called after the operation, on any thread.
  void copy_back();

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // Pairs of copy and original.
};

/// Use of elements by an operation. Elements that are only moved may be of any type.
enum class Elements : std::uint8_t { kComputed, kMoved };

/// The memory on which the core works for PlainTensors. A tensor that the core cannot use is
/// rejected as an argument of the call. Owned by the operation's Work. Not thread-safe.
class Staging {
 public:
  /// For a call without tensors.
  Staging() = default;

  explicit Staging(const Arguments& arguments, Elements elements = Elements::kComputed)
      : arguments_(arguments), elements_(elements) {}

  /// Returns the elements of an input tensor, in a form that the operation can use.
  Buffer input(const at::Tensor& tensor);
  std::vector<Buffer> inputs(at::TensorList tensors);

  /// Returns a buffer that receives the tensor's elements.
  Buffer output(const at::Tensor& tensor);
  std::vector<Buffer> outputs(at::TensorList tensors);

  /// Returns a buffer with the tensor's elements that also receives the result.
  Buffer in_out(const at::Tensor& tensor);

  /// Adds a step to copy_back(), which runs after the results are copied.
  void at_end(std::function<void()> step) { steps_.push_back(std::move(step)); }

  /// Copies the results. Called after the operation, on any thread.
  void copy_back();

 private:
  [[nodiscard]] Buffer buffer_of(const at::Tensor& tensor, TensorAccess access) const;

  // Used only at the start of the call.
  std::optional<Arguments> arguments_;
  Elements elements_ = Elements::kComputed;
  PlainTensors plain_;
  std::vector<std::function<void()>> steps_;
};

}  // namespace unisono::python
