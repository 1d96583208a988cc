#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/options.h"
#include "unisono/torch/ddp/pass_feature.h"
#include "unisono/torch/device/device_stream.h"

namespace unisono::ddp {

// Functions that return true if no element is an infinity or NaN. Each makes one pass over the
// bits, which the compiler vectorizes.

/// Variant for 16-bit floats. `exponent` masks the exponent bits of the format.
[[nodiscard]] bool are_all_finite(std::span<const std::uint16_t> bits, std::uint16_t exponent);

[[nodiscard]] bool are_all_finite(std::span<const float> numbers);
/// Variant for 64-bit floats.
[[nodiscard]] bool are_all_finite(std::span<const double> numbers);

/// Detects gradients that are not finite, pass by pass, and applies a NonFiniteGradients policy.
/// Owned by the Reducer. Not thread-safe.
class FiniteCheck : public PassFeature {
 public:
  explicit FiniteCheck(const PassContext& context)
      : context_(context), policy_(context.options.non_finite_gradients) {}

  void inspect(std::size_t parameter, const at::Tensor& gradient) override;

  [[nodiscard]] int n_flags() const override { return 1; }

  /// 1 if a gradient of this rank is not finite. Waits for gradients on devices, once for all.
  PassFlags flags() override;

  /// Drops the gradients if any rank's flag is set. Throws Error(kInvalidArgument) where that was
  /// asked for; else rank 0 warns.
  void end_pass(PassResult& result) override;

  void give_up() override {
    found_.clear();
    on_device_.clear();
  }

  /// Number of passes with dropped gradients.
  [[nodiscard]] std::int64_t n_skipped() const { return n_skipped_; }

 private:
  // The largest absolute value of a gradient on a device: not finite if any element is not.
  struct Largest {
    std::size_t parameter;
    at::Tensor value;
  };

  const PassContext& context_;
  NonFiniteGradients policy_;
  std::vector<Largest> on_device_;
  UsedStreams streams_;  // of the largest values
  std::string found_;    // first non-finite parameter of the pass on this rank
  std::int64_t n_skipped_ = 0;
};

}  // namespace unisono::ddp
