// Prints the learning rates of an optimizer step by step. Each schedule has a line: its name, then
// the rates. Arguments are metrics; with arguments the program prints the rates of ReduceOnPlateau.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/torch/optim/lr_scheduler.h"

namespace {

using namespace unisono::optim;

constexpr double kBaseLr = 0.05;
constexpr int kSteps = 40;

std::map<std::string, Schedule> all_schedules() {
  return {
      {"constant", constant_lr(0.5, 7)},
      {"constant_default", constant_lr()},
      {"linear", linear_lr(0.25, 0.75, 9)},
      {"linear_default", linear_lr()},
      {"step", step_lr(3, 0.7)},
      {"step_default", step_lr(10)},
      {"multi_step", multi_step_lr({11, 4, 11, 20}, 0.3)},
      {"exponential", exponential_lr(0.93)},
      {"polynomial", polynomial_lr(25, 1.7)},
      {"polynomial_default", polynomial_lr()},
      {"lambda",
       lambda_lr([](std::int64_t step) { return 1 / std::sqrt(1.0 + static_cast<double>(step)); })},
      {"cosine", cosine_annealing_lr(13, 1e-3)},
      {"restarts", cosine_annealing_warm_restarts(7, 1, 1e-3)},
      {"growing_restarts", cosine_annealing_warm_restarts(3, 2)},
      {"one_cycle", one_cycle_lr(0.2, kSteps)},
      {"one_cycle_linear",
       one_cycle_lr(0.2, kSteps, {.pct_start = 0.25, .anneal_strategy = Anneal::kLinear})},
      {"one_cycle_three_phases",
       one_cycle_lr(0.2, kSteps, {.div_factor = 10, .final_div_factor = 100, .three_phase = true})},
      {"triangular", cyclic_lr(0.01, 0.1, {.step_size_up = 5, .step_size_down = 8})},
      {"triangular2", cyclic_lr(0.01, 0.1, {.step_size_up = 5, .mode = CyclicMode::kTriangular2})},
      {"exp_range",
       cyclic_lr(0.01, 0.1, {.step_size_up = 5, .mode = CyclicMode::kExpRange, .gamma = 0.97})},
      {"chained", chained_lr({linear_lr(0.1, 1.0, 6), exponential_lr(0.9)})},
      {"warm_up_then_cosine",
       sequential_lr({linear_lr(0.1, 1.0, 5), cosine_annealing_lr(20, 1e-4)}, {5})},
      {"three_in_sequence",
       sequential_lr(
           {constant_lr(0.1, 100), exponential_lr(0.9), cosine_annealing_warm_restarts(4, 2)},
           {4, 12})},
  };
}

std::map<std::string, ReduceOnPlateauOptions> all_plateaus() {
  using Mode = ReduceOnPlateauOptions::Mode;
  using ThresholdMode = ReduceOnPlateauOptions::ThresholdMode;
  return {
      {"plateau", {.patience = 2}},
      {"plateau_abs",
       {.patience = 1, .threshold = 0.3, .threshold_mode = ThresholdMode::kAbs, .cooldown = 2}},
      {"plateau_max", {.mode = Mode::kMax, .factor = 0.5, .patience = 3, .min_lr = 0.004}},
      {"plateau_max_abs",
       {.mode = Mode::kMax,
        .factor = 0.5,
        .patience = 4,
        .threshold = 0.1,
        .threshold_mode = ThresholdMode::kAbs,
        .eps = 2e-3}},
  };
}

torch::optim::SGD make_optimizer() {
  return torch::optim::SGD({torch::zeros({1})}, torch::optim::SGDOptions(kBaseLr));
}

void print_rate(const torch::optim::Optimizer& optimizer) {
  std::printf(" %.17g", optimizer.param_groups()[0].options().get_lr());
}

void print_schedules() {
  for (const auto& [name, schedule] : all_schedules()) {
    std::printf("%s", name.c_str());
    torch::optim::SGD optimizer = make_optimizer();
    LrScheduler scheduler(optimizer, schedule);
    for (int step = 0; step < kSteps; ++step) {
      print_rate(optimizer);
      scheduler.step();
    }
    std::printf("\n");
  }
}

void print_plateaus(std::span<char* const> metrics) {
  for (const auto& [name, options] : all_plateaus()) {
    std::printf("%s", name.c_str());
    torch::optim::SGD optimizer = make_optimizer();
    ReduceOnPlateau plateau(options);
    for (const char* const metric : metrics) {
      step_on_plateau(plateau, optimizer, std::stod(metric));
      print_rate(optimizer);
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 1) {
      print_schedules();
    } else {
      print_plateaus(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
