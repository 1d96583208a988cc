#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include "unisono/comm/process_group.h"

namespace unisono {

/// State of mixed precision of a thread, for the CPU and for the accelerator of this process, if it
/// has one.
class AutocastState {
 public:
  /// The state that the calling thread has now.
  AutocastState();

  /// The state with these values for all devices.
  AutocastState(c10::ScalarType type, bool is_enabled);

  /// Makes this state the calling thread's.
  void set() const;

  /// Returns true if any device computes in mixed precision.
  [[nodiscard]] bool is_enabled() const;

 private:
  struct OfDevice {
    c10::DeviceType device;
    bool is_enabled;
    c10::ScalarType type;
  };

  std::vector<OfDevice> devices_;
};

/// RAII guard of mixed precision on this thread, like Python's torch.autocast for the CPU and the
/// accelerator together: LibTorch computes operations that tolerate lower precision (matrix
/// products, convolutions) in `type`, and operations that do not (losses, norms) in 32 bits.
/// Parameters, gradients and the reduction of gradients keep their types. Guards nest; a guard with
/// `is_enabled` false excludes a part.
///
///     {
///       const unisono::Autocast autocast;
///       loss = torch::nll_loss(model(images), labels);
///     }
///     loss.backward();
///
/// Must be destroyed on the thread that made the object, in reverse order of construction.
class Autocast {
 public:
  /// Throws Error(kInvalidArgument) unless `type` is kBFloat16 or kHalf.
  explicit Autocast(c10::ScalarType type = c10::ScalarType::BFloat16, bool is_enabled = true);

  /// Sets a state that the thread, or another thread, had before.
  explicit Autocast(const AutocastState& state);
  ~Autocast();

  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  Autocast(Autocast&&) = delete;
  Autocast& operator=(Autocast&&) = delete;

 private:
  AutocastState previous_;
};

}  // namespace unisono

namespace torch::optim {
class Optimizer;
}

namespace unisono {

/// Names and defaults follow PyTorch. Every rank passes equal options.
struct GradScalerOptions {
  /// Scale of the first step.
  double init_scale = 65536;
  /// Factor of the scale after `growth_interval` steps without overflow.
  double growth_factor = 2;
  /// Factor of the scale after a step with an overflow.
  double backoff_factor = 0.5;
  /// Number of consecutive steps without overflow after which the scale grows.
  std::int64_t growth_interval = 2000;
  /// false: losses and gradients are not scaled, and every step is made.
  bool enabled = true;
};

/// Multiplies losses by a scale so that small gradients survive 16 bits, divides the gradients by
/// the scale, and skips a step with an overflowed gradient, like Python's torch.amp.GradScaler.
///
///     unisono::GradScaler scaler({}, group);
///     ...
///     scaler.scale(loss).backward();
///     scaler.unscale(optimizer);  // only if gradients are used before step(), e.g. for clipping
///     scaler.step(optimizer);
///     scaler.update();
///
/// With a group, the ranks agree on the skipped steps: an overflow on one rank suffices. Gradients
/// that DistributedDataParallel has averaged overflow on all ranks anyway; local gradients need the
/// group. The object holds the group and refers to optimizers between updates. Gradients on devices
/// are unscaled and examined there; the host waits once per optimizer and step, for the outcome.
/// Not thread-safe.
class GradScaler {
 public:
  /// Throws Error(kInvalidArgument) for unusable options.
  explicit GradScaler(const GradScalerOptions& options = {},
                      std::shared_ptr<ProcessGroup> group = {});

  /// Returns the loss times the scale.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the gradients of the optimizer's parameters by the scale. step() does so if unscale()
  /// was not called. With a group, a collective operation.
  ///
  /// Throws Error(kInvalidArgument) for a second call between updates, and for 16-bit and sparse
  /// gradients.
  void unscale(torch::optim::Optimizer& optimizer);

  /// Makes the optimizer's step, unless a gradient is infinite or NaN. Returns true if the step was
  /// made. With a group, a collective operation unless unscale() was called.
  bool step(torch::optim::Optimizer& optimizer);

  /// Updates the scale. Called once after the steps of all optimizers.
  ///
  /// Throws Error(kInvalidArgument) if no optimizer was unscaled since the last update.
  void update();

  [[nodiscard]] double get_scale() const { return options_.enabled ? scale_ : 1; }

  /// Number of steps since the scale changed. Save this number and get_scale() as the state.
  [[nodiscard]] std::int64_t growth_tracker() const { return growth_tracker_; }

  /// Restores a saved state. Throws Error(kInvalidArgument) for values out of range.
  void load_state(double scale, std::int64_t growth_tracker);

 private:
  // State of an optimizer since the last update.
  struct Progress {
    bool has_overflowed;
    bool is_stepped;
  };

  /// Returns true if a gradient has overflowed on any rank of the group.
  [[nodiscard]] bool agree(bool has_overflowed) const;

  GradScalerOptions options_;
  std::shared_ptr<ProcessGroup> group_;
  float scale_;
  std::int64_t growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, Progress> progress_;
};

}  // namespace unisono
