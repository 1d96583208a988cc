#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// True while autograd runs a backward pass on this thread.
[[nodiscard]] bool is_in_backward();

/// Calls `callback` when the backward pass that runs on this thread has computed everything; what
/// it throws, backward() throws. A pass that ends with an exception destroys `callback` uncalled.
///
/// Inside the backward pass of an activation checkpoint, which runs nested in another, "the pass"
/// is the inner one.
void at_end_of_backward(std::function<void()> callback);

/// Puts an identity on top of the history of `output`: `on_backward` is called when a backward pass
/// starts from there, before any gradient of what lies below is computed. A tensor that is a leaf
/// is replaced by an alias of it. Does nothing to tensors that require no gradient.
void attach_backward_signal(at::Tensor& output, std::function<void()> on_backward);

}  // namespace unisono::ddp
