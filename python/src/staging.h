#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"

#include "arguments.h"

namespace unisono::python {

/// Tensors that an operation works on in place of those of its caller: the same where they are
/// contiguous, else contiguous copies, from which copy_back() brings the results. Tensors that have
/// no strides, or are not on the CPU, stay as they are.
class PlainTensors {
 public:
  /// Whether a copy takes its place.
  [[nodiscard]] static bool must_copy(const at::Tensor& tensor);

  /// Holds the tensor's elements.
  [[nodiscard]] static at::Tensor input(const at::Tensor& tensor);

  /// Takes the tensor's elements. Throws PyTorch's exception for a tensor whose elements overlap.
  [[nodiscard]] at::Tensor output(const at::Tensor& tensor);

  /// Both. Throws as output().
  [[nodiscard]] at::Tensor in_out(const at::Tensor& tensor);

  /// Whether there is nothing to bring back.
  [[nodiscard]] bool is_empty() const { return copies_.empty(); }

  /// After the operation, on any thread.
  void copy_back();

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;  // Copy, tensor.
};

/// How an operation uses elements: elements that it only moves may be of any type.
enum class Elements : std::uint8_t { kComputed, kMoved };

/// The memory in which the core works on PlainTensors. A tensor that can't be worked on is refused
/// as the call's argument.
class Staging {
 public:
  /// Of a call that takes no tensors.
  Staging() = default;

  explicit Staging(const Arguments& arguments, Elements elements = Elements::kComputed)
      : arguments_(arguments), elements_(elements) {}

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

  // Used only while the call begins.
  std::optional<Arguments> arguments_;
  Elements elements_ = Elements::kComputed;
  PlainTensors plain_;
  std::vector<std::function<void()>> steps_;
};

}  // namespace unisono::python
