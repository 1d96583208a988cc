#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace torch::optim {
class Optimizer;
}

namespace unisono {

/// Names and defaults are PyTorch's. Equal on every rank.
struct GradScalerOptions {
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  /// Steps in a row without overflow after which the scale grows.
  std::int64_t growth_interval = 2000;
  /// False: losses and gradients stay as they are, and every step is made.
  bool enabled = true;
};

/// Multiplies losses by a scale so that small gradients survive 16 bits, divides the gradients by
/// it, and leaves a step out where one overflowed: Python's torch.amp.GradScaler.
///
///     unisono::GradScaler scaler({}, group);
///     ...
///     scaler.scale(loss).backward();
///     scaler.unscale(optimizer);  // only where gradients are looked at, to clip them say
///     scaler.step(optimizer);
///     scaler.update();
///
/// With a group, ranks agree on which steps are left out: one that overflows is enough. Gradients
/// that DistributedDataParallel has averaged overflow on all ranks anyway; those that stay on their
/// rank need it. Not thread-safe.
class GradScaler {
 public:
  /// Throws Error(kInvalidArgument) for options that can't be used.
  explicit GradScaler(const GradScalerOptions& options = {},
                      std::shared_ptr<ProcessGroup> group = {});

  /// The loss times the scale.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of the optimizer's parameters by the scale; step() does it where this
  /// was not called. With a group a collective operation.
  ///
  /// Throws Error(kInvalidArgument) when called twice between updates, and for 16-bit and sparse
  /// gradients.
  void unscale(torch::optim::Optimizer& optimizer);

  /// Makes the optimizer's step, unless a gradient is infinite or NaN. Returns whether it did.
  bool step(torch::optim::Optimizer& optimizer);

  /// To be called once after the steps of all optimizers: changes the scale.
  ///
  /// Throws Error(kInvalidArgument) when no optimizer was unscaled.
  void update();

  [[nodiscard]] double get_scale() const { return options_.enabled ? scale_ : 1; }

  /// Steps since the scale changed. It and get_scale() are the state to save.
  [[nodiscard]] std::int64_t growth_tracker() const { return growth_tracker_; }

  void load_state(double scale, std::int64_t growth_tracker);

 private:
  // Of an optimizer, since the last update.
  struct Progress {
    bool has_overflowed;
    bool is_stepped;
  };

  [[nodiscard]] bool agree(bool has_overflowed) const;

  GradScalerOptions options_;
  std::shared_ptr<ProcessGroup> group_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, Progress> progress_;
};

}  // namespace unisono
