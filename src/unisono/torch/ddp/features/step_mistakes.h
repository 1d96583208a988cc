#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/pass_feature.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/optim/rebuilt_optimizer.h"

namespace unisono::ddp {

/// Detects training steps that go wrong without an error, from a sample of the bytes of a parameter
/// and of the parameter's gradient. Warns once of each mistake:
///
/// - Steps with local gradients: passes under no_sync(), with the parameters changed between passes
///   and no average by hand. The ranks' models then diverge.
/// - Steps that add gradients to the gradients of earlier steps, because the gradients were never
///   set to zero: three steps in a row. Gradients that stay for a single pass are no mistake: a
///   generator's pass leaves gradients in the discriminator.
///
/// The sample of a parameter on a device is copied to the host beside the pass and examined at the
/// next pass, so that the host does not wait.
class StepMistakes : public PassFeature {
 public:
  explicit StepMistakes(const PassContext& context);

  void on_backward(bool is_synchronized, bool is_untouched) override;

 private:
  // A pass, as it begins.
  struct Pass {
    bool is_synchronized;
    bool is_untouched;
    std::int64_t n_averages;
    std::uint64_t sample = 0;  // Hash of a sample of the parameter.
    bool is_zero = true;       // A sample of the gradient has zeros only.
  };

  // A pass whose samples are on the way to the host.
  struct Open {
    Pass pass;
    at::Tensor parameter;
    at::Tensor gradient;
  };

  void examine(const Pass& pass);
  void examine_gradient(bool is_zero, bool has_stepped);

  at::Tensor parameter_;  // one that the step of an optimizer changes
  std::string who_;       // stands before the warnings
  HostCopies copies_;
  std::optional<Open> open_;
  bool has_passed_ = false;
  bool was_local_ = false;
  bool has_warned_of_local_ = false;
  bool has_warned_of_kept_ = false;
  int n_kept_ = 0;            // steps in a row with a kept gradient
  std::uint64_t sample_ = 0;  // hash of a sample of the parameter at the last pass
  std::int64_t n_averages_ = 0;
};

/// Warns of optimizers that are made anew in each step (see OptimizerWatch).
class RebuiltOptimizerWarning : public PassFeature {
 public:
  explicit RebuiltOptimizerWarning(const PassContext& context)
      : watch_(context.parameters.front().tensor) {}

  void before_forward() override { watch_.before_forward(); }

  void on_backward(bool /*is_synchronized*/, bool /*is_untouched*/) override {
    watch_.before_backward();
  }

  void after_backward() override { watch_.after_backward(); }

 private:
  optim::OptimizerWatch watch_;
};

/// Records a call of average_gradients() or average_parameters(). Thread-safe.
void note_average_by_hand() noexcept;

}  // namespace unisono::ddp
