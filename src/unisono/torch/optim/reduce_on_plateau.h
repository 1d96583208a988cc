#pragma once

#include <cstdint>

namespace unisono::optim {

/// Python's names and defaults.
struct ReduceOnPlateauOptions {
  enum class Mode { kMin, kMax };           ///< Whether a lower or a higher metric is better.
  enum class ThresholdMode { kRel, kAbs };  ///< Of `threshold`: a part of the best metric, or not.

  Mode mode = Mode::kMin;
  double factor = 0.1;
  std::int64_t patience = 10;  ///< So many epochs in a row may be no better.
  double threshold = 1e-4;     ///< A metric is better when it is so by more than this.
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  std::int64_t cooldown = 0;  ///< So many epochs after a reduction don't count.
  double min_lr = 0;
  double eps = 1e-8;  ///< Smaller reductions are left out.
};

/// Lowers a learning rate when a metric stops getting better, as Python's ReduceLROnPlateau does. A
/// value: to save it, copy `state()`.
///
/// The metric must be the same on every rank, or their rates come apart: pass the mean of all
/// ranks' losses.
class ReduceOnPlateau {
 public:
  struct State {
    double best;  ///< Metric so far.
    std::int64_t n_bad_epochs = 0;
    std::int64_t cooldown_left = 0;
  };

  /// Throws Error(kInvalidArgument) unless 0 <= factor < 1.
  explicit ReduceOnPlateau(const ReduceOnPlateauOptions& options = {});

  /// An epoch has ended with this metric: says whether the rate is to be reduced now.
  [[nodiscard]] bool step(double metric);

  /// What becomes of a rate when it is reduced.
  [[nodiscard]] double reduced(double lr) const;

  [[nodiscard]] const State& state() const { return state_; }

  void set_state(const State& state) { state_ = state; }

 private:
  [[nodiscard]] bool is_better(double metric) const;

  ReduceOnPlateauOptions options_;
  State state_;
};

}  // namespace unisono::optim
