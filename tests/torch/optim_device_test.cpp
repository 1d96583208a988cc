// Steps of optimizers, loss scaling and clipping on a simulated device, compared with the CPU.

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/torch/amp/amp.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/optim/weight_average.h"
#include "unisono/torch/parallel/tensor/divided_model.h"

#include "sim_test.h"

namespace unisono::testing {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Optimizer = torch::optim::Optimizer;
using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(Tensors)>;

// Parameters of several shapes, one with strides of its own, one with zeros.
Tensors make_parameters(torch::Dtype type) {
  torch::manual_seed(3);
  Tensors parameters{torch::randn({5, 3}, type),
                     torch::randn({2, 3, 4, 4}, type).contiguous(at::MemoryFormat::ChannelsLast),
                     torch::zeros({7}, type),
                     torch::randn({1200}, type)};
  for (Tensor& parameter : parameters) {
    parameter.set_requires_grad(true);
  }
  return parameters;
}

Tensors on(torch::Device device, const Tensors& tensors) {
  Tensors moved;
  for (const Tensor& tensor : tensors) {
    moved.push_back(
        tensor.detach().to(device, /*non_blocking=*/false, /*copy=*/true).set_requires_grad(true));
  }
  return moved;
}

void set_gradients(const Tensors& parameters, int step) {
  for (const Tensor& parameter : parameters) {
    parameter.mutable_grad() = parameter.detach() * 0.5 + 0.25 / step;
  }
}

Tensors train(torch::Device device, torch::Dtype type, const MakeOptimizer& make) {
  Tensors parameters = on(device, make_parameters(type));
  const std::unique_ptr<Optimizer> optimizer = make(parameters);
  for (int step = 1; step <= 4; ++step) {
    set_gradients(parameters, step);
    if (step == 2) {
      parameters.back().mutable_grad().reset();  // Its state has fewer steps.
    }
    optimizer->step();
  }
  return parameters;
}

template <class Kind, class Options>
MakeOptimizer maker(Options options) {
  return [options](Tensors parameters) {
    return std::make_unique<Kind>(std::move(parameters), options);
  };
}

class OptimDevice : public SimTest {};

TEST_F(OptimDevice, StepsHaveTheBitsOfTheCpu) {
  using namespace optim;
  const std::vector<std::pair<std::string, MakeOptimizer>> makers{
      {"Adadelta", maker<Adadelta>(AdadeltaOptions(0.5))},
      {"Adadelta with decay", maker<Adadelta>(AdadeltaOptions(0.5).weight_decay(0.1))},
      {"AdamW", maker<AdamW>(AdamWOptions(0.1))},
      {"Lamb", maker<Lamb>(LambOptions(0.1))},
      {"Lars", maker<Lars>(LarsOptions(0.1).weight_decay(0.01))},
      {"Lars as SGD", maker<Lars>(LarsOptions(0.1).trust_coefficient(0))}};
  for (const auto& [name, make] : makers) {
    for (const torch::Dtype type : {torch::kFloat, torch::kBFloat16}) {
      expect_same_bits(train(sim(), type, make),
                       train(torch::kCPU, type, make),
                       name + " " + c10::toString(type));
    }
  }
}

// LibTorch's operators for the CPU take norms in another order than the loops, and round square
// roots of doubles otherwise.
TEST_F(OptimDevice, StepsInDoubleAgreeUpToRounding) {
  for (const MakeOptimizer& make : {maker<optim::Adadelta>(optim::AdadeltaOptions(0.5)),
                                    maker<optim::AdamW>(optim::AdamWOptions(0.1)),
                                    maker<optim::Lamb>(optim::LambOptions(0.1)),
                                    maker<optim::Lars>(optim::LarsOptions(0.1))}) {
    const Tensors here = train(torch::kCPU, torch::kDouble, make);
    const Tensors there = train(sim(), torch::kDouble, make);
    for (std::size_t i = 0; i < here.size(); ++i) {
      EXPECT_TRUE(here[i].allclose(there[i].cpu(), 1e-12, 1e-14));
    }
  }
}

TEST_F(OptimDevice, AStepDoesNotWaitForTheDevice) {
  const Tensors parameters = on(sim(), make_parameters(torch::kFloat));
  optim::Lamb lamb(parameters, optim::LambOptions(0.1));
  optim::AdamW adamw(parameters, optim::AdamWOptions(0.1));
  set_gradients(parameters, 1);
  lamb.step();  // The device runs shapes for the first time on the host.
  adamw.step();
  const auto before = ::sim::counters().host_waits;
  lamb.step();
  adamw.step();
  EXPECT_EQ(::sim::counters().host_waits, before);
}

TEST_F(OptimDevice, ParametersOnTheCpuAndOnADeviceShareAnOptimizer) {
  Tensors parameters = make_parameters(torch::kFloat);
  Tensors mixed = on(torch::kCPU, parameters);
  mixed[1] = on(sim(1), {parameters[1]})[0];
  optim::AdamW of_mixed(mixed, optim::AdamWOptions(0.1));
  optim::AdamW of_cpu(parameters, optim::AdamWOptions(0.1));
  for (int step = 1; step <= 2; ++step) {
    set_gradients(mixed, step);
    set_gradients(parameters, step);
    of_mixed.step();
    of_cpu.step();
  }
  expect_same_bits(mixed, parameters, "AdamW");
}

struct Scaled {
  Tensors parameters;
  std::vector<bool> are_stepped = {};
  double scale = 0;
};

Scaled train_scaled(torch::Device device) {
  Scaled result{.parameters = on(device, make_parameters(torch::kFloat))};
  torch::optim::SGD optimizer(result.parameters, torch::optim::SGDOptions(0.1));
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  for (int step = 1; step <= 5; ++step) {
    optimizer.zero_grad();
    Tensor loss = result.parameters[0].square().sum() + result.parameters[3].sum();
    if (step == 3) {
      loss = loss * std::numeric_limits<float>::infinity();
    }
    scaler.scale(loss).backward();
    result.are_stepped.push_back(scaler.step(optimizer));
    scaler.update();
  }
  result.scale = scaler.get_scale();
  return result;
}

TEST_F(OptimDevice, GradScalerSkipsTheStepsThatItSkipsOnTheCpu) {
  const Scaled here = train_scaled(torch::kCPU);
  const Scaled there = train_scaled(sim());
  EXPECT_EQ(there.are_stepped, std::vector<bool>({true, true, false, true, true}));
  EXPECT_EQ(there.are_stepped, here.are_stepped);
  EXPECT_EQ(there.scale, here.scale);
  expect_same_bits(there.parameters, here.parameters, "scaled");
}

TEST_F(OptimDevice, GradScalerWaitsOncePerStep) {
  Tensors parameters = on(sim(), make_parameters(torch::kFloat));
  const Tensors others = on(sim(1), make_parameters(torch::kDouble));
  parameters.insert(parameters.end(), others.begin(), others.end());
  torch::optim::SGD optimizer(parameters, torch::optim::SGDOptions(0.1));
  GradScaler scaler({.init_scale = 8});
  for (int step = 1; step <= 2; ++step) {
    set_gradients(parameters, step);
    const auto before = ::sim::counters().host_waits;
    EXPECT_TRUE(scaler.step(optimizer));
    EXPECT_LE(::sim::counters().host_waits - before, 1U) << "in step " << step;
    scaler.update();
  }
}

TEST_F(OptimDevice, AutocastComputesInSixteenBitsOnTheDevice) {
  const Tensor matrix = torch::randn({4, 4});
  const auto product = [](const Tensor& tensor) { return tensor.mm(tensor); };
  {
    const Autocast autocast;
    EXPECT_EQ(product(matrix.to(sim())).scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(has_same_bits(product(matrix.to(sim())), product(matrix)));
    {
      const Autocast off(torch::kBFloat16, false);
      EXPECT_EQ(product(matrix.to(sim())).scalar_type(), torch::kFloat);
    }
  }
  EXPECT_EQ(product(matrix.to(sim())).scalar_type(), torch::kFloat);
}

TEST_F(OptimDevice, ClippingHasTheBitsAndTheNormOfTheCpu) {
  for (const double type : {2.0, 1.0, std::numeric_limits<double>::infinity()}) {
    torch::nn::Linear here(6, 4);
    torch::manual_seed(1);
    here->weight.mutable_grad() = torch::randn({4, 6});
    here->bias.mutable_grad() = torch::randn({4});
    torch::nn::Linear there(6, 4);
    there->to(sim());
    there->weight.mutable_grad() = here->weight.grad().to(sim());
    there->bias.mutable_grad() = here->bias.grad().to(sim());
    const auto before = ::sim::counters().host_waits;
    const double norm = parallel::clip_grad_norm(*there, 0.5, {.norm_type = type});
    EXPECT_LE(::sim::counters().host_waits - before, 1U);
    EXPECT_EQ(norm, parallel::clip_grad_norm(*here, 0.5, {.norm_type = type}));
    expect_same_bits({there->weight.grad(), there->bias.grad()},
                     {here->weight.grad(), here->bias.grad()},
                     "norm of type " + std::to_string(type));
  }
}

TEST_F(OptimDevice, WeightAveragesHaveTheBitsOfTheCpu) {
  const auto average = [](torch::Device device) {
    const Tensors parameters = on(device, make_parameters(torch::kFloat));
    auto averages = optim::WeightAverage::exponential(parameters, 0.9);
    for (int step = 1; step <= 3; ++step) {
      set_gradients(parameters, step);
      for (const Tensor& parameter : parameters) {
        parameter.detach().sub_(parameter.grad());
      }
      averages.update();
    }
    averages.swap();
    return parameters;
  };
  expect_same_bits(average(sim()), average(torch::kCPU), "averages");
}

}  // namespace
}  // namespace unisono::testing
