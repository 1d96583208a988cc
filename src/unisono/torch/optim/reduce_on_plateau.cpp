#include "unisono/torch/optim/reduce_on_plateau.h"

#include <algorithm>
#include <limits>

#include "unisono/torch/optim/check_argument.h"

namespace unisono::optim {

using Mode = ReduceOnPlateauOptions::Mode;
using ThresholdMode = ReduceOnPlateauOptions::ThresholdMode;

ReduceOnPlateau::ReduceOnPlateau(const ReduceOnPlateauOptions& options)
    : options_(options),
      state_{.best =
                 (options.mode == Mode::kMin ? 1 : -1) * std::numeric_limits<double>::infinity()} {
  check_value(options.factor >= 0 && options.factor < 1,
              "ReduceOnPlateau",
              "factor",
              options.factor,
              "from 0 to below 1");
}

bool ReduceOnPlateau::is_better(double metric) const {
  const double sign = options_.mode == Mode::kMin ? -1 : 1;
  const double limit = options_.threshold_mode == ThresholdMode::kRel
                           ? state_.best * (1 + sign * options_.threshold)
                           : state_.best + sign * options_.threshold;
  return options_.mode == Mode::kMin ? metric < limit : metric > limit;
}

bool ReduceOnPlateau::step(double metric) {
  if (is_better(metric)) {
    state_.best = metric;
    state_.n_bad_epochs = 0;
  } else {
    ++state_.n_bad_epochs;
  }
  if (state_.cooldown_left > 0) {
    --state_.cooldown_left;
    state_.n_bad_epochs = 0;
  }
  if (state_.n_bad_epochs <= options_.patience) {
    return false;
  }
  state_.cooldown_left = options_.cooldown;
  state_.n_bad_epochs = 0;
  return true;
}

double ReduceOnPlateau::reduced(double lr) const {
  const double next = std::max(lr * options_.factor, options_.min_lr);
  return lr - next > options_.eps ? next : lr;
}

}  // namespace unisono::optim
