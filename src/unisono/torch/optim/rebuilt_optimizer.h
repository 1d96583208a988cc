#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace unisono::optim {

// Detects loops that construct a new optimizer for each step, which lose momentum and running
// averages: no error occurs, but the training differs. Three such steps in a row cause a warning,
// once per thread.

/// Called before a step of an optimizer of this library. `parameter` is the first parameter that
/// the step changes. `is_first`: the optimizer has no state yet.
void note_step(const at::Tensor& parameter, bool is_first);

/// Watches the steps of LibTorch's optimizers, which do not call note_step(), by the operations of
/// a thread between a backward pass and the next pass. A first step, or the constructor, allocates
/// state of the parameter's size (zeros_like() or full_like() of the parameter, or a copy of the
/// gradient that the step then adds to the parameter); later steps allocate no state. The watch
/// ends with the first later step, or after ten passes, so that the rest of the training has no
/// cost.
///
/// Owned by the Reducer of a model. Not thread-safe.
class OptimizerWatch {
 public:
  explicit OptimizerWatch(at::Tensor parameter);

  /// Called at the start of a forward pass, on the thread that makes steps, outside of backward
  /// passes.
  void before_forward();

  void before_backward();

  void after_backward();

  class Window;

 private:
  void close_window();

  std::shared_ptr<Window> window_;  // Null after the end of the watch.
  bool is_done_ = false;
  int n_windows_ = 0;
  int n_first_steps_ = 0;  // number of first steps in a row
};

}  // namespace unisono::optim
