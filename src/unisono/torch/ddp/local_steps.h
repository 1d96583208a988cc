#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// Notices a training whose steps are made with gradients of its own rank alone: passes under
/// no_sync(), with the parameters changed between them, and no average by hand. The ranks' models
/// then go apart without an error. Warns once.
class LocalSteps {
 public:
  /// `parameter`: one that an optimizer's step changes. `who` stands before the warning.
  LocalSteps(at::Tensor parameter, std::string who);

  /// A backward pass begins.
  void on_pass(bool is_synchronized);

 private:
  at::Tensor parameter_;
  std::string who_;
  bool was_local_ = false;
  bool has_warned_ = false;
  std::uint64_t sample_ = 0;  // of the parameter's values at the last pass
  std::int64_t n_averages_ = 0;
};

/// average_gradients() or average_parameters() was called.
void note_average_by_hand() noexcept;

}  // namespace unisono::ddp
