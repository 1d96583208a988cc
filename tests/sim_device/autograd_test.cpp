#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/DeviceAccelerator.h>
#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/torch.h>

#include "sim_device/quiet_end.h"
#include "sim_device/test_tensors.h"

namespace sim {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

class Autograd : public QuietEnd {
 protected:
  Autograd() { torch::set_num_threads(1); }

  static torch::Tensor leaf(const torch::Tensor& value, int device) {
    return value.to(sim_device(device)).detach().requires_grad_();
  }

  const c10::impl::VirtualGuardImpl guard_{c10::kPrivateUse1};
};

TEST_F(Autograd, HooksRunOnAThreadOfTheDevice) {
  const torch::Tensor w = leaf(torch::ones({4}), 2);
  std::thread::id thread;
  int device = -1;
  const auto accumulator = torch::autograd::impl::grad_accumulator(w);
  accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [&](const torch::autograd::variable_list&, const torch::autograd::variable_list&) {
        thread = std::this_thread::get_id();
        device = guard_.getDevice().index();
        return torch::autograd::variable_list{};
      }));
  (w * 5).sum().backward();
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(device, 2);
  EXPECT_TRUE(same_bits(w.grad(), torch::full({4}, 5.0)));
}

TEST_F(Autograd, AnEventInTheHookOrdersTheGradient) {
  const c10::Stream side = guard_.getStreamFromGlobalPool(sim_device(0));
  const torch::Tensor w = leaf(torch::randn({64, 64}), 0);
  const torch::Tensor x = torch::randn({64, 64}).to(sim_device(0));
  for (int i = 0; i < 10; ++i) {
    c10::Event ready(c10::kPrivateUse1);
    torch::Tensor sum;
    const auto hook = w.register_hook([&](const torch::Tensor& gradient) {
      ready.record(guard_.getStream(sim_device(0)));
      ready.block(side);
      const c10::StreamGuard on_side(side);
      sum = gradient * 2;
      gradient.record_stream(side);
    });
    x.mm(w).relu().sum().backward();
    w.remove_hook(hook);
    const c10::StreamGuard on_side(side);
    EXPECT_TRUE(sum.isfinite().all().item<bool>());
  }
}

TEST_F(Autograd, CrossesDevices) {
  const torch::Tensor a = torch::randn({8, 8});
  const torch::Tensor b = torch::randn({8, 8});
  const torch::Tensor x = torch::randn({4, 8});
  const torch::Tensor w = a.clone().requires_grad_();
  const torch::Tensor v = b.clone().requires_grad_();
  at::relu(x.mm(w)).mm(v).pow(2).sum().backward();
  for (int i = 0; i < 10; ++i) {
    const torch::Tensor w1 = leaf(a, 1);
    const torch::Tensor v2 = leaf(b, 2);
    const c10::StreamGuard side(guard_.getStreamFromGlobalPool(sim_device(1)));
    c10::Event made(c10::kPrivateUse1);
    made.record(guard_.getDefaultStream(sim_device(1)));
    made.block(guard_.getStream(sim_device(1)));
    at::relu(x.to(sim_device(1)).mm(w1)).to(sim_device(2)).mm(v2).pow(2).sum().backward();
    EXPECT_TRUE(same_bits(w1.grad(), w.grad()));
    EXPECT_TRUE(same_bits(v2.grad(), v.grad()));
  }
}

TEST_F(Autograd, GradientsAreOrderedWithTheStreamOfBackward) {
  const torch::Tensor w = leaf(torch::randn({32, 32}), 0);
  const auto gradient_used_on_default_stream = [&](bool is_backward_on_side) {
    synchronize_all();
    w.mutable_grad() = torch::Tensor();
    torch::Tensor loss;
    {
      const c10::StreamGuard side(guard_.getStreamFromGlobalPool(sim_device(0)));
      loss = w.mm(w).sum();
      if (is_backward_on_side) {
        loss.backward();
      }
    }
    if (!is_backward_on_side) {
      loss.backward();
    }
    torch::Tensor twice = w.grad() * 2;
    synchronize_all();
    return take_races();
  };
  EXPECT_THAT(gradient_used_on_default_stream(true), Not(IsEmpty()));
  EXPECT_THAT(gradient_used_on_default_stream(false), IsEmpty());
}

TEST_F(Autograd, TwiceBackward) {
  const torch::Tensor x = torch::randn({4, 5});
  const auto second_gradient = [](const torch::Tensor& at) {
    const auto gradient = torch::autograd::grad({at.tanh().sum()}, {at}, {}, true, true)[0];
    gradient.pow(2).sum().backward();
    return at.grad();
  };
  EXPECT_TRUE(same_bits(second_gradient(leaf(x, 3)), second_gradient(x.clone().requires_grad_())));
}

// Runs a layer and a softmax under autocast to bfloat16.
std::vector<torch::Tensor> run_autocast(c10::Device device) {
  torch::manual_seed(1);
  torch::nn::Linear layer(8, 4);
  const torch::Tensor x = torch::randn({3, 8}).to(device);
  layer->to(device);
  at::autocast::set_autocast_dtype(device.type(), at::kBFloat16);
  at::autocast::set_autocast_enabled(device.type(), true);
  const torch::Tensor y = layer(x);
  const torch::Tensor soft = torch::softmax(y, 1);
  y.sum().backward();
  at::autocast::set_autocast_enabled(device.type(), false);
  at::autocast::clear_cache();
  return {y, soft, layer->weight.grad()};
}

TEST_F(Autograd, AutocastHasTheBitsOfTheCpu) {
  const auto sim = run_autocast(sim_device(0));
  const auto cpu = run_autocast(c10::kCPU);
  EXPECT_EQ(sim[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(sim[1].scalar_type(), at::kFloat);
  EXPECT_TRUE(same_bits(sim[0], cpu[0]));
  EXPECT_TRUE(same_bits(sim[2], cpu[2]));
}

// trace() is in the list of operators that run in float32.
TEST_F(Autograd, AutocastOfTheCpuDoesNotReachTheDevice) {
  const torch::Tensor x = torch::randn({8, 8}).to(at::kBFloat16);
  const torch::Tensor expected = x.trace();
  const torch::Tensor device = x.to(sim_device(0));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const torch::Tensor trace = device.trace();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_TRUE(same_bits(trace, expected));
}

TEST_F(Autograd, ModulesAreSavedAndLoaded) {
  torch::nn::Linear layer(3, 2);
  layer->to(sim_device(1));
  std::stringstream file;
  torch::save(layer, file);
  torch::nn::Linear copy(3, 2);
  torch::load(copy, file, c10::Device(c10::kCPU));
  EXPECT_TRUE(copy->weight.is_cpu());
  EXPECT_TRUE(same_bits(copy->weight, layer->weight));
  file.seekg(0);
  torch::load(copy, file, sim_device(2));
  EXPECT_EQ(copy->weight.device(), sim_device(2));
  EXPECT_TRUE(same_bits(copy->weight, layer->weight));
}

TEST_F(Autograd, RanksInThreadsShareADevice) {
  const torch::Tensor x = torch::randn({32, 32});
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const c10::StreamGuard side(guard_.getStreamFromGlobalPool(sim_device(rank / 2)));
      const torch::Tensor w = leaf(x, rank / 2);
      for (int i = 0; i < 10; ++i) {
        w.mutable_grad() = torch::Tensor();
        w.mm(w).sum().backward();
      }
      const torch::Tensor sums = x.sum(0).unsqueeze(1) + x.sum(1).unsqueeze(0);
      EXPECT_TRUE(torch::allclose(w.grad().cpu(), sums, 1e-4, 1e-4));
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace sim
