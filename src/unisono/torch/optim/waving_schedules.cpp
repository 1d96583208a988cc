// Schedules that rise and fall.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <vector>

#include "unisono/torch/optim/check_argument.h"
#include "unisono/torch/optim/schedule.h"

namespace unisono::optim {
namespace {

// From `first` to `last` as `part` goes from 0 to 1.
double anneal(Anneal strategy, double first, double last, double part) {
  return strategy == Anneal::kCosine
             ? last + (first - last) / 2 * (std::cos(std::numbers::pi * part) + 1)
             : first + (last - first) * part;
}

struct Phase {
  double end_step;
  double first_lr;
  double last_lr;
};

std::vector<Phase> phases_of(double max_lr, double total_steps, const OneCycleOptions& options) {
  const double first_lr = max_lr / options.div_factor;
  const double last_lr = first_lr / options.final_div_factor;
  const double rise = options.pct_start * total_steps;
  std::vector<Phase> phases{{.end_step = rise - 1, .first_lr = first_lr, .last_lr = max_lr}};
  if (options.three_phase) {
    phases.push_back({.end_step = 2 * rise - 2, .first_lr = max_lr, .last_lr = first_lr});
  }
  phases.push_back(
      {.end_step = total_steps - 1, .first_lr = phases.back().last_lr, .last_lr = last_lr});
  return phases;
}

// What is left of a peak's height in a cycle, the first of which is number 1.
double height(const CyclicOptions& options, double cycle, double step) {
  switch (options.mode) {
    case CyclicMode::kTriangular2:
      return std::pow(2.0, 1 - cycle);
    case CyclicMode::kExpRange:
      return std::pow(options.gamma, step);
    case CyclicMode::kTriangular:
      break;
  }
  return 1;
}

}  // namespace

Schedule cosine_annealing_lr(std::int64_t t_max, double eta_min) {
  check_value(t_max > 0, "cosine_annealing_lr", "t_max", t_max, "positive");
  return [=](double base_lr, std::int64_t step) {
    return anneal(
        Anneal::kCosine, base_lr, eta_min, static_cast<double>(step) / static_cast<double>(t_max));
  };
}

Schedule cosine_annealing_warm_restarts(std::int64_t t_0, std::int64_t t_mult, double eta_min) {
  check_value(t_0 > 0, "cosine_annealing_warm_restarts", "t_0", t_0, "positive");
  check_value(t_mult >= 1, "cosine_annealing_warm_restarts", "t_mult", t_mult, "1 at least");
  return [=](double base_lr, std::int64_t step) {
    std::int64_t length = t_0;
    if (t_mult == 1) {
      step %= length;
    }
    while (step >= length) {
      step -= length;
      length *= t_mult;
    }
    return anneal(
        Anneal::kCosine, base_lr, eta_min, static_cast<double>(step) / static_cast<double>(length));
  };
}

Schedule one_cycle_lr(double max_lr, std::int64_t total_steps, const OneCycleOptions& options) {
  check_value(total_steps > 0, "one_cycle_lr", "total_steps", total_steps, "positive");
  check_value(options.pct_start >= 0 && options.pct_start <= 1,
              "one_cycle_lr",
              "pct_start",
              options.pct_start,
              "from 0 to 1");
  return [phases = phases_of(max_lr, static_cast<double>(total_steps), options),
          strategy = options.anneal_strategy](double /*base_lr*/, std::int64_t step) {
    const auto now = static_cast<double>(step);
    double begin = 0;
    std::size_t i = 0;
    for (; i + 1 < phases.size() && now > phases[i].end_step; ++i) {
      begin = phases[i].end_step;
    }
    const Phase& phase = phases[i];
    // After the last step the rate stays.
    const double part =
        phase.end_step > begin ? std::min(1.0, (now - begin) / (phase.end_step - begin)) : 1;
    return anneal(strategy, phase.first_lr, phase.last_lr, part);
  };
}

Schedule cyclic_lr(double base_lr, double max_lr, const CyclicOptions& options) {
  check_value(
      options.step_size_up > 0, "cyclic_lr", "step_size_up", options.step_size_up, "positive");
  check_value(options.step_size_down >= 0,
              "cyclic_lr",
              "step_size_down",
              options.step_size_down,
              "0 (that of step_size_up) or positive");
  const auto up = static_cast<double>(options.step_size_up);
  const double down = options.step_size_down > 0 ? static_cast<double>(options.step_size_down) : up;
  const double total = up + down;
  return [=](double /*optimizers*/, std::int64_t step) {
    const auto now = static_cast<double>(step);
    const double cycle = std::floor(1 + now / total);
    const double part = 1 + now / total - cycle;
    const double rise = up / total;
    const double scale = part <= rise ? part / rise : (part - 1) / (rise - 1);
    return base_lr + (max_lr - base_lr) * scale * height(options, cycle, now);
  };
}

}  // namespace unisono::optim
