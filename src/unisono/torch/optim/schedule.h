#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace unisono::optim {

/// A learning rate as a function of the optimizer's own rate and the number of steps made so far, 0
/// at first: nothing to save, and any step can be asked for. What a step is, a batch or an epoch,
/// is the caller's choice. `LrScheduler` sets an optimizer's rates by it.
///
/// The functions below make the schedules of Python's torch.optim.lr_scheduler, with its defaults,
/// and give its values to rounding. They throw Error(kInvalidArgument) for arguments out of range.
using Schedule = std::function<double(double base_lr, std::int64_t step)>;

/// `base_lr * factor` for `total_iters` steps, then `base_lr`.
[[nodiscard]] Schedule constant_lr(double factor = 1.0 / 3, std::int64_t total_iters = 5);

/// From `base_lr * start_factor` to `base_lr * end_factor` in `total_iters` equal steps: a warm-up.
[[nodiscard]] Schedule linear_lr(double start_factor = 1.0 / 3,
                                 double end_factor = 1.0,
                                 std::int64_t total_iters = 5);

/// Times `gamma` every `step_size` steps.
[[nodiscard]] Schedule step_lr(std::int64_t step_size, double gamma = 0.1);

/// Times `gamma` at each of `milestones`; one that is there twice counts twice.
[[nodiscard]] Schedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma = 0.1);

/// Times `gamma` at every step.
[[nodiscard]] Schedule exponential_lr(double gamma);

/// `base_lr * (1 - step / total_iters) ^ power`, then 0.
[[nodiscard]] Schedule polynomial_lr(std::int64_t total_iters = 5, double power = 1.0);

/// `base_lr * factor(step)`.
[[nodiscard]] Schedule lambda_lr(std::function<double(std::int64_t step)> factor);

/// Half a cosine from `base_lr` to `eta_min` in `t_max` steps, then up again, and so on.
///
/// Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts",
/// arXiv:1608.03983.
[[nodiscard]] Schedule cosine_annealing_lr(std::int64_t t_max, double eta_min = 0);

/// Half a cosine from `base_lr` to `eta_min` in `t_0` steps, then again from `base_lr` in `t_mult`
/// times as many, and so on.
[[nodiscard]] Schedule cosine_annealing_warm_restarts(std::int64_t t_0,
                                                      std::int64_t t_mult = 1,
                                                      double eta_min = 0);

enum class Anneal { kCosine, kLinear };

struct OneCycleOptions {
  double pct_start = 0.3;  ///< The part of the steps in which the rate rises.
  Anneal anneal_strategy = Anneal::kCosine;
  double div_factor = 25;         ///< The first rate is `max_lr / div_factor`.
  double final_div_factor = 1e4;  ///< The last is the first / `final_div_factor`.
  bool three_phase = false;       ///< Fall to the first rate as fast as it rose, then to the last.
};

/// From a low rate up to `max_lr`, then down to a far lower one, in `total_steps` steps, whatever
/// the optimizer's own rate is. Momentum stays as it is (Python's cycle_momentum=False).
///
/// Source: Smith and Topin, "Super-convergence: very fast training of neural networks using large
/// learning rates", arXiv:1708.07120.
[[nodiscard]] Schedule one_cycle_lr(double max_lr,
                                    std::int64_t total_steps,
                                    const OneCycleOptions& options = {});

enum class CyclicMode {
  kTriangular,   ///< Every peak as high as the first.
  kTriangular2,  ///< Every peak half as high above `base_lr` as the one before.
  kExpRange,     ///< Heights shrink by `gamma` at each step.
};

struct CyclicOptions {
  std::int64_t step_size_up = 2000;
  std::int64_t step_size_down = 0;  ///< 0: as `step_size_up`.
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1.0;
};

/// Up from `base_lr` to `max_lr` and down again, over and over, whatever the optimizer's own rate
/// is. Momentum stays as it is (Python's cycle_momentum=False).
///
/// Source: Smith, "Cyclical learning rates for training neural networks", arXiv:1506.01186.
[[nodiscard]] Schedule cyclic_lr(double base_lr, double max_lr, const CyclicOptions& options = {});

/// One schedule after the other: each of `milestones` is the step at which the next one starts,
/// from its own step 0.
[[nodiscard]] Schedule sequential_lr(std::vector<Schedule> schedules,
                                     std::vector<std::int64_t> milestones);

/// All at once: each takes for its base what the one before it gives. Equals Python's
/// ChainedScheduler where all but the first multiply their base by a factor.
[[nodiscard]] Schedule chained_lr(std::vector<Schedule> schedules);

}  // namespace unisono::optim
