#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// Calls back when autograd has put a parameter's gradient of a backward pass into `.grad`.
///
/// Keeps the parameters' gradient accumulators alive: autograd itself holds them weakly, and a hook
/// would vanish with its accumulator. Removes the hooks when it is destroyed.
class GradientHooks {
 public:
  /// `on_gradient` gets the parameter's place in `parameters`, on the thread that runs backward.
  GradientHooks(const std::vector<at::Tensor>& parameters,
                std::function<void(std::size_t)> on_gradient);
  ~GradientHooks();

  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;
  GradientHooks(GradientHooks&&) = delete;
  GradientHooks& operator=(GradientHooks&&) = delete;

  /// More parameters; their places follow those of the others.
  void add(const std::vector<at::Tensor>& parameters);

  /// Moves the hooks of parameters that have got another accumulator since: LibTorch gives a tensor
  /// that is set anew, by torch::load() for one, a new one at its next use.
  void follow();

  /// Which parameters the backward pass on this thread will accumulate a gradient for; nothing if
  /// it accumulates none at all by request, as torch::autograd::grad() does. What lies behind an
  /// activation checkpoint is not seen.
  [[nodiscard]] std::optional<std::vector<bool>> find_reached() const;

 private:
  struct Entry;

  std::shared_ptr<const std::function<void(std::size_t)>> on_gradient_;  // shared with the hooks
  std::vector<Entry> entries_;
};

}  // namespace unisono::ddp
