#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// Returns true while autograd runs a backward pass on this thread.
[[nodiscard]] bool is_in_backward();

/// Calls `finish` when the backward pass that runs on this thread has computed everything; what
/// it throws, backward() throws. A pass that ends with an exception calls `give_up` instead, which
/// does not throw.
///
/// Inside the backward pass of an activation checkpoint, which runs nested in another, "the pass"
/// is the inner one.
void at_end_of_backward(std::function<void()> finish, std::function<void()> give_up);

/// Adds an identity node on top of the autograd history of `output`. A backward pass that starts
/// from `output` calls `on_backward` before autograd computes any gradient below the node. A leaf
/// tensor is replaced by an alias of the tensor. Ignores undefined tensors and tensors that require
/// no gradient.
void attach_backward_signal(at::Tensor& output, std::function<void()> on_backward);

/// Calls a callback when autograd has accumulated a parameter's gradient of a backward pass into
/// `.grad`.
///
/// Keeps the parameters' gradient accumulators alive: autograd holds accumulators weakly, and a
/// hook would vanish with its accumulator. The destructor removes the hooks. Not thread-safe;
/// callbacks run on the thread that runs backward.
class GradientHooks {
 public:
  /// `on_gradient` receives the parameter's index in `parameters`, on the thread that runs
  /// backward.
  GradientHooks(const std::vector<at::Tensor>& parameters,
                std::function<void(std::size_t)> on_gradient);
  ~GradientHooks();

  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  GradientHooks(GradientHooks&&) = delete;
  GradientHooks& operator=(GradientHooks&&) = delete;

  /// Adds parameters; their indices follow the present indices.
  void add(const std::vector<at::Tensor>& parameters);

  /// Moves hooks to the present accumulators of the parameters. LibTorch gives a tensor a new
  /// accumulator at the next use after the tensor is set anew, for example by torch::load().
  void follow();

  /// Returns, for each parameter, whether the backward pass on this thread will accumulate a
  /// gradient. Returns std::nullopt if the pass was requested not to accumulate any, as by
  /// torch::autograd::grad(). Parameters behind an activation checkpoint are not visible.
  [[nodiscard]] std::optional<std::vector<bool>> find_reached() const;

 private:
  struct Entry;

  std::shared_ptr<const std::function<void(std::size_t)>> on_gradient_;  // shared with the hooks
  std::vector<Entry> entries_;
};

}  // namespace unisono::ddp
