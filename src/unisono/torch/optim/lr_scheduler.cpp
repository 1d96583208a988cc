#include "unisono/torch/optim/lr_scheduler.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/torch/optim/check_argument.h"

namespace unisono::optim {

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
