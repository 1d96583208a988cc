#pragma once

#include <c10/core/ScalarType.h>

namespace unisono {

/// While it lives, LibTorch computes on this thread in `type` what may lose bits (matrix products,
/// convolutions), and in 32 bits what must not (losses, norms): Python's torch.autocast for CPUs.
/// Parameters stay what they are; so do gradients, and their reduction. Scopes nest; one with
/// `is_enabled` false leaves a part out.
///
///     {
///       const unisono::Autocast autocast;
///       loss = torch::nll_loss(model(images), labels);
///     }
///     loss.backward();
///
/// Destroyed on the thread that made it, the last one first.
class Autocast {
 public:
  /// Throws Error(kInvalidArgument) unless `type` is kBFloat16 or kHalf.
  explicit Autocast(c10::ScalarType type = c10::ScalarType::BFloat16, bool is_enabled = true);
  ~Autocast();

  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  Autocast(Autocast&&) = delete;
  Autocast& operator=(Autocast&&) = delete;

 private:
  bool was_enabled_;
  c10::ScalarType previous_type_;
};

}  // namespace unisono
