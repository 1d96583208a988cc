#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "unisono/torch/optim/check_argument.h"
#include "unisono/torch/optim/schedule.h"

namespace unisono::optim {

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

}  // namespace unisono::optim
