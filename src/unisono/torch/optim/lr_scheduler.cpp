// Schedules that rise and fall.

#include "unisono/torch/optim/lr_scheduler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <string>
#include <utility>

#include "unisono/torch/optim/check_argument.h"

namespace unisono::optim {
namespace {

void check_schedules(const std::vector<Schedule>& schedules, const char* who) {
  check_argument(!schedules.empty(), who, "there must be one schedule at least");
  check_argument(
      std::ranges::all_of(schedules, [](const Schedule& schedule) { return schedule != nullptr; }),
      who,
      "a schedule is an empty function");
}

}  // namespace

Schedule sequential_lr(std::vector<Schedule> schedules, std::vector<std::int64_t> milestones) {
  check_schedules(schedules, "sequential_lr");
  check_argument(milestones.size() + 1 == schedules.size(),
                 "sequential_lr",
                 "there are " + std::to_string(schedules.size()) + " schedules and " +
                     std::to_string(milestones.size()) +
                     " milestones; there must be one milestone less than schedules");
  for (std::size_t i = 1; i < milestones.size(); ++i) {
    check_argument(milestones[i - 1] <= milestones[i],
                   "sequential_lr",
                   "milestone " + std::to_string(milestones[i]) + " comes after " +
                       std::to_string(milestones[i - 1]) + "; the milestones must be in order");
  }
  return [schedules = std::move(schedules), milestones = std::move(milestones)](double base_lr,
                                                                                std::int64_t step) {
    const auto next = std::ranges::upper_bound(milestones, step);
    const std::int64_t begin = next == milestones.begin() ? 0 : *(next - 1);
    return schedules[static_cast<std::size_t>(next - milestones.begin())](base_lr, step - begin);
  };
}

Schedule chained_lr(std::vector<Schedule> schedules) {
  check_schedules(schedules, "chained_lr");
  return [schedules = std::move(schedules)](double base_lr, std::int64_t step) {
    for (const Schedule& schedule : schedules) {
      base_lr = schedule(base_lr, step);
    }
    return base_lr;
  };
}

Schedule constant_lr(double factor, std::int64_t total_iters) {
  check_value(factor >= 0 && factor <= 1, "constant_lr", "factor", factor, "from 0 to 1");
  return [=](double base_lr, std::int64_t step) {
    return step < total_iters ? base_lr * factor : base_lr;
  };
}

Schedule linear_lr(double start_factor, double end_factor, std::int64_t total_iters) {
  check_value(start_factor > 0 && start_factor <= 1,
              "linear_lr",
              "start_factor",
              start_factor,
              "greater than 0, and at most 1");
  check_value(
      end_factor >= 0 && end_factor <= 1, "linear_lr", "end_factor", end_factor, "from 0 to 1");
  check_value(total_iters > 0, "linear_lr", "total_iters", total_iters, "positive");
  return [=](double base_lr, std::int64_t step) {
    const double part =
        static_cast<double>(std::min(step, total_iters)) / static_cast<double>(total_iters);
    return base_lr * (start_factor + (end_factor - start_factor) * part);
  };
}

Schedule step_lr(std::int64_t step_size, double gamma) {
  check_value(step_size > 0, "step_lr", "step_size", step_size, "positive");
  return [=](double base_lr, std::int64_t step) {
    return base_lr * std::pow(gamma, static_cast<double>(step / step_size));
  };
}

Schedule multi_step_lr(std::vector<std::int64_t> milestones, double gamma) {
  std::ranges::sort(milestones);
  return [milestones = std::move(milestones), gamma](double base_lr, std::int64_t step) {
    const auto n_passed = std::ranges::upper_bound(milestones, step) - milestones.begin();
    return base_lr * std::pow(gamma, static_cast<double>(n_passed));
  };
}

Schedule exponential_lr(double gamma) {
  return [=](double base_lr, std::int64_t step) {
    return base_lr * std::pow(gamma, static_cast<double>(step));
  };
}

Schedule polynomial_lr(std::int64_t total_iters, double power) {
  check_value(total_iters > 0, "polynomial_lr", "total_iters", total_iters, "positive");
  return [=](double base_lr, std::int64_t step) {
    const double part =
        static_cast<double>(std::min(step, total_iters)) / static_cast<double>(total_iters);
    return base_lr * std::pow(1 - part, power);
  };
}

Schedule lambda_lr(std::function<double(std::int64_t step)> factor) {
  check_argument(factor != nullptr, "lambda_lr", "the function is empty");
  return [factor = std::move(factor)](double base_lr, std::int64_t step) {
    return base_lr * factor(step);
  };
}

namespace {

// Interpolates from `first` to `last` as `part` goes from 0 to 1.
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

// Returns the factor of a peak's height in a cycle; the first cycle is number 1.
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
    // After the last step the rate stays constant.
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

LrScheduler::LrScheduler(::torch::optim::Optimizer& optimizer, Schedule schedule)
    : optimizer_(optimizer), schedule_(std::move(schedule)) {
  check_argument(schedule_ != nullptr, "LrScheduler", "the schedule is an empty function");
  set_step(0);
}

void LrScheduler::set_step(std::int64_t n_steps) {
  n_steps_ = n_steps;
  for (std::size_t i = 0; i < optimizer_.param_groups().size(); ++i) {
    ::torch::optim::OptimizerOptions& options = optimizer_.param_groups()[i].options();
    if (i == base_lrs_.size()) {
      base_lrs_.push_back(options.get_lr());
    }
    options.set_lr(schedule_(base_lrs_[i], n_steps_));
  }
}

std::vector<double> LrScheduler::last_lrs() const {
  std::vector<double> rates;
  for (const double base_lr : base_lrs_) {
    rates.push_back(schedule_(base_lr, n_steps_));
  }
  return rates;
}

void step_on_plateau(ReduceOnPlateau& plateau,
                     ::torch::optim::Optimizer& optimizer,
                     double metric) {
  if (!plateau.step(metric)) {
    return;
  }
  for (::torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    group.options().set_lr(plateau.reduced(group.options().get_lr()));
  }
}

}  // namespace unisono::optim
