#pragma once

#include <cstdint>
#include <vector>

#include <torch/optim/optimizer.h>

#include "unisono/torch/optim/reduce_on_plateau.h"
#include "unisono/torch/optim/schedule.h"

namespace unisono::optim {

/// Sets the learning rate of each of an optimizer's groups by a schedule, starting from the group's
/// own rate. As in Python, the rate of step 0 is set at once, so that `step()` follows the
/// optimizer's.
///
///     unisono::optim::LrScheduler scheduler(optimizer, unisono::optim::step_lr(1, 0.7));
///     for (...) {
///       train_epoch(model, optimizer);
///       scheduler.step();
///     }
///
/// To resume, build optimizer and scheduler as at first, and `set_step()` to the saved number.
class LrScheduler {
 public:
  /// `optimizer` must outlive the scheduler. Throws Error(kInvalidArgument) for an empty schedule.
  LrScheduler(::torch::optim::Optimizer& optimizer, Schedule schedule);

  void step() { set_step(n_steps_ + 1); }

  /// Sets the rates to those after `n_steps` steps. A group that was added to the optimizer since
  /// starts from the rate that it has now.
  void set_step(std::int64_t n_steps);

  [[nodiscard]] std::int64_t n_steps() const { return n_steps_; }

  /// The groups' rates as they were set last.
  [[nodiscard]] std::vector<double> last_lrs() const;

 private:
  ::torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> base_lrs_;
  std::int64_t n_steps_ = 0;
};

/// `plateau.step(metric)`, and what it says done to each of the optimizer's groups.
void step_on_plateau(ReduceOnPlateau& plateau, ::torch::optim::Optimizer& optimizer, double metric);

}  // namespace unisono::optim
