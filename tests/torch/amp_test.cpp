// Mixed precision on several ranks.

#include "unisono/torch/amp/amp.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

at::Tensor product() {
  return torch::ones({4, 4}).mm(torch::ones({4, 4}));
}

TEST(Autocast, ComputesInSixteenBitsInItsScopeOnly) {
  {
    const Autocast autocast;
    EXPECT_EQ(product().scalar_type(), torch::kBFloat16);
    {
      const Autocast off(torch::kBFloat16, false);
      EXPECT_EQ(product().scalar_type(), torch::kFloat);
    }
    {
      const Autocast half(torch::kHalf);
      EXPECT_EQ(product().scalar_type(), torch::kHalf);
    }
    EXPECT_EQ(product().scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(product().scalar_type(), torch::kFloat);
  expect_error(ErrorCode::kInvalidArgument, HasSubstr("not in Double"), [] {
    const Autocast autocast(torch::kDouble);
  });
  EXPECT_EQ(product().scalar_type(), torch::kFloat);
}

// Casts of parameters are cached within the scope.
TEST(Autocast, TheNextScopeSeesParametersThatHaveChanged) {
  const at::Tensor weight = torch::ones({4, 4}, torch::requires_grad());
  for (const double expected : {4.0, 8.0}) {
    {
      const Autocast autocast;
      EXPECT_EQ(torch::ones({4, 4}).mm(weight)[0][0].item<double>(), expected);
    }
    const torch::NoGradGuard no_grad;
    weight.mul_(2);
  }
}

TEST(GradScaler, AScaledHalfLossDoesNotOverflow) {
  const GradScaler scaler;
  const at::Tensor scaled = scaler.scale(torch::full({}, 3, torch::kHalf));
  EXPECT_EQ(scaled.scalar_type(), torch::kFloat);
  EXPECT_EQ(scaled.item<double>(), 3 * 65536.0);
  EXPECT_EQ(scaler.scale(torch::full({}, 3, torch::kDouble)).scalar_type(), torch::kDouble);
}

// The models of the ranks are independent: only the scaler can report the overflow.
TEST(GradScaler, AnOverflowOnOneRankSkipsTheStepOnAll) {
  run_ranks(3, [](const Group& group) {
    const at::Tensor parameter = torch::ones({1}, torch::requires_grad());
    torch::optim::SGD optimizer(std::vector<at::Tensor>{parameter}, 1);
    GradScaler scaler({.init_scale = 8, .growth_interval = 2}, group);
    const std::vector<double> scales{4, 4, 8, 4};
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      const bool overflows = step % 3 == 0;
      const double factor =
          overflows && group->rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 0.25;
      scaler.scale((parameter * factor).sum()).backward();
      EXPECT_EQ(scaler.step(optimizer), !overflows);
      scaler.update();
      EXPECT_EQ(scaler.get_scale(), scales[static_cast<std::size_t>(step)]) << step;
    }
    EXPECT_EQ(parameter.item<float>(), 0.5F);
  });
}

TEST(GradScaler, UnscalesOnceAndAgreesOnAllOptimizers) {
  const at::Tensor a = torch::ones({1}, torch::requires_grad());
  const at::Tensor b = torch::ones({1}, torch::requires_grad());
  torch::optim::SGD first(std::vector<at::Tensor>{a}, 1);
  torch::optim::SGD second(std::vector<at::Tensor>{b}, 1);
  GradScaler scaler;
  scaler.scale((a * 0.25 + b * std::numeric_limits<double>::infinity()).sum()).backward();
  scaler.unscale(first);
  EXPECT_EQ(a.grad().item<float>(), 0.25F);
  EXPECT_TRUE(scaler.step(first));
  EXPECT_FALSE(scaler.step(second));
  EXPECT_EQ(a.item<float>(), 0.75F);
  EXPECT_EQ(b.item<float>(), 1);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 32768);
}

TEST(GradScaler, CallsInTheWrongOrderAndBadOptionsAreNamed) {
  const at::Tensor parameter = torch::ones({1}, torch::requires_grad());
  torch::optim::SGD optimizer(std::vector<at::Tensor>{parameter}, 1);
  GradScaler scaler;
  const auto refuses = [](const std::string& message, const std::function<void()>& body) {
    expect_error(ErrorCode::kInvalidArgument, HasSubstr(message), body);
  };
  refuses("neither step() nor unscale()", [&] { scaler.update(); });
  scaler.scale(parameter.sum()).backward();
  scaler.unscale(optimizer);
  refuses("since the last update()", [&] { scaler.unscale(optimizer); });
  scaler.step(optimizer);
  refuses("step() was called", [&] { scaler.step(optimizer); });
  scaler.update();
  const at::Tensor half = torch::ones({1}, torch::kHalf).set_requires_grad(true);
  half.mutable_grad() = torch::ones({1}, torch::kHalf);
  torch::optim::SGD of_half(std::vector<at::Tensor>{half}, 1);
  refuses("a gradient is Half", [&] { scaler.step(of_half); });
  refuses("growth_factor is 1", [] { GradScaler({.growth_factor = 1}); });
  refuses("backoff_factor is 1", [] { GradScaler({.backoff_factor = 1}); });
  refuses("init_scale is 0", [] { GradScaler({.init_scale = 0}); });
  refuses("growth_interval is 0", [] { GradScaler({.growth_interval = 0}); });
  refuses("the state has scale -1", [&] { scaler.load_state(-1, 0); });
}

double loss_after_training(const Group& group, bool is_mixed) {
  DistributedDataParallel<ConvNet> net(make_seeded_net(), group);
  torch::optim::SGD optimizer(net.parameters(), 0.05);
  GradScaler scaler({.enabled = is_mixed}, group);
  double loss = 0;
  for (int step = 0; step < 60; ++step) {
    const Sample sample = make_sample(step % 2, group->rank(), 8, torch::kFloat);
    at::Tensor output;
    {
      const Autocast autocast(torch::kBFloat16, is_mixed);
      output = loss_of(net, sample);
    }
    optimizer.zero_grad();
    scaler.scale(output).backward();
    scaler.step(optimizer);
    scaler.update();
    loss = output.item<double>();
  }
  net.check_consistent();
  return loss;
}

TEST(MixedPrecision, TrainsToTheLossOfThirtyTwoBits) {
  run_ranks(2, [](const Group& group) {
    const double plain = loss_after_training(group, false);
    const double mixed = loss_after_training(group, true);
    EXPECT_LT(plain, 2);
    EXPECT_LE(std::abs(mixed / plain - 1), 0.02);
    EXPECT_NE(mixed, plain);
  });
}

}  // namespace
}  // namespace unisono::testing
