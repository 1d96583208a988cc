#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

namespace unisono::optim {

// A loop that makes a new optimizer for each step never has the momentum or the averages of earlier
// steps: nothing fails, but the training is another one. Three such steps in a row are a warning,
// once for each thread.

/// To be called before a step of an optimizer of this library. `parameter` is the first that the
/// step changes; `is_first` tells whether the optimizer has no state yet.
void note_step(const at::Tensor& parameter, bool is_first);

/// Watches the steps of LibTorch's optimizers, which do not call note_step(), by the operations of
/// a thread between a backward pass and the next pass. A first step, or the constructor, makes
/// state of the parameter's size (zeros_like() or full_like() of the parameter, or a copy of the
/// gradient that the step then adds to the parameter); later steps make none. The watch ends with
/// the first later step, after ten passes at most, so that a training pays nothing for the rest.
///
/// Not thread-safe.
class OptimizerWatch {
 public:
  explicit OptimizerWatch(at::Tensor parameter);

  /// A forward pass begins on this thread, where steps are made. Outside of backward passes.
  void before_forward();

  void before_backward();

  void after_backward();

  class Window;

 private:
  void close_window();

  std::shared_ptr<Window> window_;  // Null once the watch has ended.
  bool is_done_ = false;
  int n_windows_ = 0;
  int n_first_steps_ = 0;  // in a row
};

}  // namespace unisono::optim
