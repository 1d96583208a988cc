#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// Notices trainings whose steps go wrong without an error, by some bytes of one parameter and of
/// its gradient, and warns once of each mistake:
///
/// - steps with gradients of their own rank alone: passes under no_sync(), with the parameters
///   changed between them, and no average by hand. The ranks' models then go apart.
/// - steps with gradients that are added to those of the steps before, as nothing has set them to
///   zero: three steps in a row. A gradient that stays for a single pass is no mistake: a
///   generator's pass leaves gradients in its discriminator.
class StepMistakes {
 public:
  /// `parameter`: one that an optimizer's step changes. `who` stands before the warnings.
  StepMistakes(at::Tensor parameter, std::string who);

  /// A backward pass begins. `is_untouched`: it has not computed a gradient yet.
  void on_pass(bool is_synchronized, bool is_untouched);

 private:
  void look_at_gradient(bool has_stepped);

  at::Tensor parameter_;
  std::string who_;
  bool has_passed_ = false;
  bool was_local_ = false;
  bool has_warned_of_local_ = false;
  bool has_warned_of_kept_ = false;
  int n_kept_ = 0;            // steps in a row whose gradient was kept
  std::uint64_t sample_ = 0;  // of the parameter's values at the last pass
  std::int64_t n_averages_ = 0;
};

/// average_gradients() or average_parameters() was called.
void note_average_by_hand() noexcept;

}  // namespace unisono::ddp
