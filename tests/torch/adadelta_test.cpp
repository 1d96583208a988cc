#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/types.h>

#include "unisono/torch/optim/optimizers.h"

namespace unisono::optim {
namespace {

torch::Tensor make_parameter(torch::Dtype dtype = torch::kFloat) {
  return torch::tensor({1.0, -2.0, 0.5, 3.0, -0.25, 0.125}, dtype).set_requires_grad(true);
}

void make_steps(Adadelta& optimizer, const torch::Tensor& parameter) {
  const torch::Tensor numbers = torch::arange(1, 7, parameter.scalar_type());
  for (int step = 0; step < 20; ++step) {
    const double sign = step % 3 != 0 ? 1 : -1;
    parameter.mutable_grad() = parameter.detach() * 0.5 + numbers * (0.1 * sign);
    optimizer.step();
  }
}

void expect_close(const torch::Tensor& parameter, const std::vector<double>& expected) {
  ASSERT_EQ(parameter.numel(), static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(parameter[static_cast<std::int64_t>(i)].item<double>(),
                expected[i],
                1e-6 * std::abs(expected[i]));
  }
}

// Results of torch.optim.Adadelta of PyTorch 2.13 for the same 20 steps in float32.
const std::vector<double> kPlain{
    0.928430915, -1.93973315, 0.44839099, 2.92717457, -0.256068617, 0.0983087644};
const std::vector<double> kWithDecay{
    0.928647101, -1.93796825, 0.456797183, 2.92717028, -0.253331006, 0.0972997844};

TEST(Adadelta, TwentyStepsEqualPyTorchs) {
  const torch::Tensor parameter = make_parameter();
  Adadelta optimizer({parameter});
  make_steps(optimizer, parameter);
  expect_close(parameter, kPlain);
}

TEST(Adadelta, WeightDecayEqualsPyTorchs) {
  const torch::Tensor parameter = make_parameter();
  Adadelta optimizer({parameter}, AdadeltaOptions().weight_decay(0.1));
  make_steps(optimizer, parameter);
  expect_close(parameter, kWithDecay);
}

TEST(Adadelta, OtherLayoutsAndTypesTakeTheSameSteps) {
  const torch::Tensor wide = make_parameter(torch::kDouble);
  Adadelta of_wide({wide}, AdadeltaOptions().weight_decay(0.1));
  make_steps(of_wide, wide);
  expect_close(wide, kWithDecay);

  // LibTorch's operators update a parameter with gaps in memory.
  torch::Tensor strided = torch::zeros({6, 2}).select(1, 0);
  strided.copy_(make_parameter().detach());
  strided.set_requires_grad(true);
  Adadelta of_strided({strided}, AdadeltaOptions().weight_decay(0.1));
  make_steps(of_strided, strided);
  expect_close(strided, kWithDecay);
}

TEST(Adadelta, StepLrSetsItsLearningRate) {
  Adadelta optimizer({make_parameter()});
  torch::optim::StepLR scheduler(optimizer, 1, 0.7);
  std::vector<double> rates;
  for (int epoch = 0; epoch < 3; ++epoch) {
    // LibTorch's scheduler does not change the rate in its first step; Python's scheduler is one
    // step ahead.
    scheduler.step();
    rates.push_back(optimizer.param_groups()[0].options().get_lr());
  }
  EXPECT_THAT(
      rates,
      ::testing::ElementsAre(
          ::testing::DoubleEq(1.0), ::testing::DoubleEq(0.7), ::testing::DoubleNear(0.49, 1e-15)));
}

TEST(Adadelta, OptionsOutOfRangeAreRejected) {
  EXPECT_THROW(Adadelta({make_parameter()}, AdadeltaOptions(-1)), c10::Error);
  EXPECT_THROW(Adadelta({make_parameter()}, AdadeltaOptions().rho(1.5)), c10::Error);
  EXPECT_THROW(Adadelta({make_parameter()}, AdadeltaOptions().eps(-1)), c10::Error);
  EXPECT_THROW(Adadelta({make_parameter()}, AdadeltaOptions().weight_decay(-1)), c10::Error);
}

}  // namespace
}  // namespace unisono::optim
