// tests/parity compares the rates with PyTorch.

#include "unisono/torch/optim/lr_scheduler.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/base/error.h"

namespace unisono::optim {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::torch::optim::OptimizerParamGroup;
using ::torch::optim::SGD;
using ::torch::optim::SGDOptions;

std::vector<OptimizerParamGroup> groups_with_rates(const std::vector<double>& rates) {
  std::vector<OptimizerParamGroup> groups;
  for (const double rate : rates) {
    groups.emplace_back(std::vector<at::Tensor>{torch::zeros({1})},
                        std::make_unique<SGDOptions>(rate));
  }
  return groups;
}

std::vector<double> rates_of(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const OptimizerParamGroup& group : optimizer.param_groups()) {
    rates.push_back(group.options().get_lr());
  }
  return rates;
}

::testing::Matcher<double> near(double value) {
  return DoubleNear(value, 1e-15);
}

TEST(LrScheduler, EachGroupKeepsItsOwnBase) {
  SGD optimizer(groups_with_rates({1, 0.5}), SGDOptions(1));
  LrScheduler scheduler(optimizer, linear_lr(0.5, 1.0, 2));
  EXPECT_THAT(rates_of(optimizer), ElementsAre(near(0.5), near(0.25))) << "set at once";
  scheduler.step();
  EXPECT_THAT(rates_of(optimizer), ElementsAre(near(0.75), near(0.375)));
  EXPECT_EQ(scheduler.last_lrs(), rates_of(optimizer));
}

TEST(LrScheduler, ANumberOfStepsIsAllThatResumingNeeds) {
  const Schedule schedule = sequential_lr({linear_lr(), cosine_annealing_lr(10, 0.01)}, {5});
  SGD first(groups_with_rates({0.1}), SGDOptions(1));
  LrScheduler from_start(first, schedule);
  for (int step = 0; step < 8; ++step) {
    from_start.step();
  }
  SGD second(groups_with_rates({0.1}), SGDOptions(1));
  LrScheduler resumed(second, schedule);
  resumed.set_step(from_start.n_steps());
  EXPECT_EQ(rates_of(second), rates_of(first));
  from_start.step();
  resumed.step();
  EXPECT_EQ(rates_of(second), rates_of(first));
}

TEST(LrScheduler, AGroupThatIsAddedStartsFromItsRate) {
  SGD optimizer(groups_with_rates({1}), SGDOptions(1));
  LrScheduler scheduler(optimizer, step_lr(1, 0.5));
  scheduler.step();
  optimizer.add_param_group(groups_with_rates({8}).front());
  scheduler.step();
  EXPECT_THAT(rates_of(optimizer), ElementsAre(near(0.25), near(2)));
}

TEST(ReduceOnPlateau, TheStateIsAllThatResumingNeeds) {
  const ReduceOnPlateauOptions options{.patience = 1, .cooldown = 1};
  ReduceOnPlateau from_start(options);
  EXPECT_FALSE(from_start.step(1));
  EXPECT_FALSE(from_start.step(1));
  ReduceOnPlateau resumed(options);
  resumed.set_state(from_start.state());
  EXPECT_TRUE(resumed.step(1));
  EXPECT_EQ(resumed.reduced(1), 0.1);
}

TEST(Schedules, ArgumentsOutOfRangeAreRejectedByName) {
  const auto expect_rejected = [](const std::string& message, const std::function<void()>& body) {
    EXPECT_THAT(body, ::testing::ThrowsMessage<Error>(message));
  };
  expect_rejected("constant_lr: factor is 2; it must be from 0 to 1", [] { (void)constant_lr(2); });
  expect_rejected("linear_lr: start_factor is 0; it must be greater than 0, and at most 1",
                  [] { (void)linear_lr(0); });
  expect_rejected("linear_lr: total_iters is -3; it must be positive",
                  [] { (void)linear_lr(1, 1, -3); });
  expect_rejected("step_lr: step_size is 0; it must be positive", [] { (void)step_lr(0); });
  expect_rejected("polynomial_lr: total_iters is 0; it must be positive",
                  [] { (void)polynomial_lr(0); });
  expect_rejected("lambda_lr: the function is empty", [] { (void)lambda_lr(nullptr); });
  expect_rejected("cosine_annealing_lr: t_max is -5; it must be positive",
                  [] { (void)cosine_annealing_lr(-5); });
  expect_rejected("cosine_annealing_warm_restarts: t_mult is 0; it must be 1 at least",
                  [] { (void)cosine_annealing_warm_restarts(1, 0); });
  expect_rejected("one_cycle_lr: pct_start is 2; it must be from 0 to 1",
                  [] { (void)one_cycle_lr(1, 10, {.pct_start = 2}); });
  expect_rejected("cyclic_lr: step_size_up is 0; it must be positive",
                  [] { (void)cyclic_lr(0, 1, {.step_size_up = 0}); });
  expect_rejected(
      "sequential_lr: there are 1 schedules and 1 milestones; there must be one milestone less "
      "than "
      "schedules",
      [] { (void)sequential_lr({step_lr(1)}, {1}); });
  expect_rejected("sequential_lr: milestone 2 comes after 7; the milestones must be in order",
                  [] { (void)sequential_lr({step_lr(1), step_lr(1), step_lr(1)}, {7, 2}); });
  expect_rejected("chained_lr: a schedule is an empty function",
                  [] { (void)chained_lr({step_lr(1), nullptr}); });
  expect_rejected("ReduceOnPlateau: factor is 1; it must be from 0 to below 1",
                  [] { (void)ReduceOnPlateau({.factor = 1}); });
}

TEST(Schedules, ShortOnesAreFinite) {
  EXPECT_EQ(one_cycle_lr(1, 4, {.pct_start = 0.25})(5, 0), 1.0) << "a rise of one step";
  EXPECT_GT(one_cycle_lr(1, 10, {.pct_start = 0})(5, 0), 0.9);
  EXPECT_NEAR(one_cycle_lr(1, 10)(5, 100), 1.0 / 25 / 1e4, 1e-15) << "the last rate stays";
}

}  // namespace
}  // namespace unisono::optim
