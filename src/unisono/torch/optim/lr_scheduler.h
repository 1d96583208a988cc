#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <torch/optim/optimizer.h>

namespace unisono::optim {

/// A learning rate as a function of the optimizer's own rate and the number of steps so far,
/// starting at 0. Stateless: no state needs to be saved, and the rate of any step can be computed.
/// A step is a batch or an epoch, by the caller's choice. `LrScheduler` sets an optimizer's rates
/// by a schedule.
///
/// The functions below return the schedules of Python's torch.optim.lr_scheduler, with the same
/// defaults and, up to rounding, the same values. They throw Error(kInvalidArgument) for arguments
/// out of range.
using Schedule = std::function<double(double base_lr, std::int64_t step)>;

/// Returns `base_lr * factor` for `total_iters` steps, then `base_lr`.
[[nodiscard]] Schedule constant_lr(double factor = 1.0 / 3, std::int64_t total_iters = 5);

/// Rises or falls from `base_lr * start_factor` to `base_lr * end_factor` in `total_iters` equal
/// steps, for example as a warm-up.
[[nodiscard]] Schedule linear_lr(double start_factor = 1.0 / 3,
                                 double end_factor = 1.0,
                                 std::int64_t total_iters = 5);

/// Multiplies the rate by `gamma` every `step_size` steps.
[[nodiscard]] Schedule step_lr(std::int64_t step_size, double gamma = 0.1);

/// Multiplies the rate by `gamma` at each of `milestones`; a milestone that is listed twice counts
/// twice.
[[nodiscard]] Schedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma = 0.1);

/// Multiplies the rate by `gamma` at every step.
[[nodiscard]] Schedule exponential_lr(double gamma);

/// Returns `base_lr * (1 - step / total_iters) ^ power`, then 0.
[[nodiscard]] Schedule polynomial_lr(std::int64_t total_iters = 5, double power = 1.0);

/// Returns `base_lr * factor(step)`.
[[nodiscard]] Schedule lambda_lr(std::function<double(std::int64_t step)> factor);

/// Follows half a cosine from `base_lr` to `eta_min` in `t_max` steps, then half a cosine back, and
/// so on.
///
/// Source: Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts",
/// arXiv:1608.03983.
[[nodiscard]] Schedule cosine_annealing_lr(std::int64_t t_max, double eta_min = 0);

/// Follows half a cosine from `base_lr` to `eta_min` in `t_0` steps, then restarts from `base_lr`
/// with a period that is `t_mult` times as long, and so on.
[[nodiscard]] Schedule cosine_annealing_warm_restarts(std::int64_t t_0,
                                                      std::int64_t t_mult = 1,
                                                      double eta_min = 0);

/// Curve of the falling rate: half a cosine, or a straight line.
enum class Anneal { kCosine, kLinear };

/// Options of one_cycle_lr().
struct OneCycleOptions {
  double pct_start = 0.3;  ///< Fraction of the steps in which the rate rises.
  /// Curve of rising and falling rates.
  Anneal anneal_strategy = Anneal::kCosine;
  double div_factor = 25;         ///< The first rate is `max_lr / div_factor`.
  double final_div_factor = 1e4;  ///< The last rate is the first rate / `final_div_factor`.
  bool three_phase = false;  ///< Fall to the first rate as fast as the rise, then to the last rate.
};

/// Rises from a low rate to `max_lr`, then falls to a much lower rate, in `total_steps` steps,
/// independently of the optimizer's own rate. Momentum does not change (Python's
/// cycle_momentum=False).
///
/// Source: Smith and Topin, "Super-convergence: very fast training of neural networks using large
/// learning rates", arXiv:1708.07120.
[[nodiscard]] Schedule one_cycle_lr(double max_lr,
                                    std::int64_t total_steps,
                                    const OneCycleOptions& options = {});

/// Heights of the peaks of cyclic_lr().
enum class CyclicMode {
  kTriangular,   ///< All peaks have the height of the first peak.
  kTriangular2,  ///< Each peak has half the height of the previous peak above `base_lr`.
  kExpRange,     ///< Heights shrink by `gamma` at each step.
};

/// Options of cyclic_lr().
struct CyclicOptions {
  /// Number of steps in which the rate rises.
  std::int64_t step_size_up = 2000;
  std::int64_t step_size_down = 0;  ///< 0: equal to `step_size_up`.
  /// Heights of the peaks.
  CyclicMode mode = CyclicMode::kTriangular;
  /// Factor of the height per step, for kExpRange.
  double gamma = 1.0;
};

/// Rises from `base_lr` to `max_lr` and falls back, repeatedly, independently of the optimizer's
/// own rate. Momentum does not change (Python's cycle_momentum=False).
///
/// Source: Smith, "Cyclical learning rates for training neural networks", arXiv:1506.01186.
[[nodiscard]] Schedule cyclic_lr(double base_lr, double max_lr, const CyclicOptions& options = {});

/// Runs the schedules in sequence. Each of `milestones` is the step at which the next schedule
/// starts, from step 0 of that schedule.
[[nodiscard]] Schedule sequential_lr(std::vector<Schedule> schedules,
                                     std::vector<std::int64_t> milestones);

/// Combines all schedules at once: the result of each schedule is the base rate of the next. Equals
/// Python's ChainedScheduler if all schedules but the first multiply their base rate by a factor.
[[nodiscard]] Schedule chained_lr(std::vector<Schedule> schedules);

/// Names and defaults follow Python's.
struct ReduceOnPlateauOptions {
  /// kMin: a lower metric is better. kMax: a higher metric is better.
  enum class Mode { kMin, kMax };
  /// `threshold` is relative to the best metric, or absolute.
  enum class ThresholdMode { kRel, kAbs };

  /// Direction of an improvement.
  Mode mode = Mode::kMin;
  /// Factor of the rate at a reduction.
  double factor = 0.1;
  std::int64_t patience = 10;  ///< Tolerated number of epochs in a row without improvement.
  /// A metric counts as better only if the difference exceeds this value.
  double threshold = 1e-4;
  /// Meaning of `threshold`.
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  std::int64_t cooldown = 0;  ///< Number of epochs after a reduction that are not counted.
  /// Lower limit of the rate.
  double min_lr = 0;
  double eps = 1e-8;  ///< Reductions by at most this amount are not made.
};

/// Lowers a learning rate when a metric stops improving, like Python's ReduceLROnPlateau. A value
/// type: to save the object, copy `state()`.
///
/// The metric must be equal on all ranks, or the ranks' rates diverge: pass the mean of all ranks'
/// losses.
class ReduceOnPlateau {
 public:
  /// Position in the training; a checkpoint stores this state.
  struct State {
    double best;  ///< Best metric so far.
    std::int64_t n_bad_epochs = 0;
    std::int64_t cooldown_left = 0;
  };

  /// Throws Error(kInvalidArgument) unless 0 <= factor < 1.
  explicit ReduceOnPlateau(const ReduceOnPlateauOptions& options = {});

  /// Records the metric of an epoch. Returns true if the rate is to be reduced now.
  [[nodiscard]] bool step(double metric);

  /// Returns the reduced rate.
  [[nodiscard]] double reduced(double lr) const;

  [[nodiscard]] const State& state() const { return state_; }

  /// Restores a saved state.
  void set_state(const State& state) { state_ = state; }

 private:
  [[nodiscard]] bool is_better(double metric) const;

  ReduceOnPlateauOptions options_;
  State state_;
};

/// Sets the learning rate of each group of an optimizer by a schedule, starting from the group's
/// own rate. As in Python, the constructor sets the rate of step 0, so that `step()` is called
/// after the optimizer's step.
///
///     unisono::optim::LrScheduler scheduler(optimizer, unisono::optim::step_lr(1, 0.7));
///     for (...) {
///       train_epoch(model, optimizer);
///       scheduler.step();
///     }
///
/// To resume, build optimizer and scheduler as at the start of the training, then call `set_step()`
/// with the saved number. Not thread-safe.
class LrScheduler {
 public:
  /// `optimizer` must outlive the scheduler. Throws Error(kInvalidArgument) for an empty schedule.
  LrScheduler(::torch::optim::Optimizer& optimizer, Schedule schedule);

  /// Sets the rates of the next step. Call after the optimizer's step.
  void step() { set_step(n_steps_ + 1); }

  /// Sets the rates for `n_steps` steps made. A group that was added to the optimizer since the
  /// last call starts from the group's present rate.
  void set_step(std::int64_t n_steps);

  [[nodiscard]] std::int64_t n_steps() const { return n_steps_; }

  /// Returns the groups' rates as last set.
  [[nodiscard]] std::vector<double> last_lrs() const;

 private:
  ::torch::optim::Optimizer& optimizer_;
  Schedule schedule_;
  std::vector<double> base_lrs_;
  std::int64_t n_steps_ = 0;
};

/// Calls `plateau.step(metric)`. If the rate is to be reduced, reduces the rate of each group of
/// the optimizer.
void step_on_plateau(ReduceOnPlateau& plateau, ::torch::optim::Optimizer& optimizer, double metric);

}  // namespace unisono::optim
