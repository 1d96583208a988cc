// Hashes, random states, activation checkpoints and saved states of tensors on simulated devices.

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/save.h"
#include "unisono/torch/amp/amp.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/features/replica_consistency.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/device/local_device.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/random_state.h"

#include "rank_threads.h"
#include "sim_test.h"
#include "support/ranks.h"
#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;
using Group = std::shared_ptr<ProcessGroup>;

class StateDevice : public SimTest {
 protected:
  test::TemporaryFolder folder_;
};

torch::nn::Sequential make_module(torch::Device device) {
  torch::manual_seed(5);
  torch::nn::Sequential module(torch::nn::Linear(6, 8),
                               torch::nn::BatchNorm1d(8),
                               torch::nn::Dropout(0.3),
                               torch::nn::Linear(8, 3));
  module->to(device);
  return module;
}

Tensor input_on(torch::Device device) {
  return torch::arange(24, torch::kFloat).view({4, 6}).sin().to(device);
}

TEST_F(StateDevice, HashesAreTheCpus) {
  const Tensor tensor = torch::randn({5, 7});
  EXPECT_EQ(hash_tensors({tensor.to(sim(1)), tensor.t().to(sim())}),
            hash_tensors({tensor, tensor.t()}));
  run_ranks(2, [&](const Group& group) {
    const Tensor own = group->rank() == 0 ? tensor : tensor.to(sim());
    check_consistent(*group, {{.name = "a", .tensor = own}});
    EXPECT_THAT(
        [&] {
          check_consistent(*group, {{.name = "a", .tensor = group->rank() == 0 ? own : own + 1}});
        },
        test::throws_error(ErrorCode::kMismatch, "tensor 'a'"));
    EXPECT_THAT(
        [&] { check_consistent(*group, {{.name = "a", .tensor = tensor.to(torch::kMeta)}}); },
        test::throws_error(ErrorCode::kInvalidArgument, "tensor 'a' is on meta"));
  });
}

TEST_F(StateDevice, FingerprintsOfParametersAreTheCpus) {
  std::vector<NamedTensor> here;
  std::vector<NamedTensor> there;
  for (const std::int64_t count : {3, 5000, 1, 700}) {
    here.push_back({.name = "w", .tensor = torch::randn({count, 2}).t()});
    there.push_back({.name = "w", .tensor = here.back().tensor.to(sim())});
  }
  ddp::ParameterSamples of_cpu(here);
  ddp::ParameterSamples of_device(there);
  for (int i = 0; i < 30; ++i) {
    if (i % 3 != 0) {
      of_device.prepare();
    }
    if (i % 5 == 1) {
      of_cpu.skip();
      of_device.skip();
    }
    ASSERT_EQ(of_device.take(), of_cpu.take()) << i;
  }
}

TEST_F(StateDevice, GeneratorsOfDevicesAreSavedAndRestored) {
  const auto draw = [] { return torch::rand({4}, sim(1)); };
  seed_random(7, sim(1));
  const Tensor state = random_state(sim(1));
  const Tensor first = draw();
  {
    const KeptRandomState kept({sim(1)});
    set_random_state(state, sim(1));
    EXPECT_TRUE(has_same_bits(draw(), first));
    seed_random(1, {sim(1)});
  }
  const Tensor second = draw();
  set_random_state(state, sim(1));
  expect_same_bits({draw(), draw()}, {first, second}, "draws");
  EXPECT_THAT([] { set_random_state(torch::zeros({3}, at::kByte), sim(1)); },
              test::throws_error(ErrorCode::kInvalidArgument, "not a random generator's state"));
}

TEST_F(StateDevice, ActivationCheckpointsDrawTheSameNumbersAgain) {
  const auto gradients = [](torch::Device device, bool is_checkpointed, bool has_autocast) {
    torch::nn::Sequential module = make_module(device);
    const Tensor input = input_on(device).set_requires_grad(true);
    seed_random(11);
    if (!device.is_cpu()) {
      seed_random(11, device);
    }
    const Autocast autocast(torch::kBFloat16, has_autocast);
    const auto run = [&](const Tensor& x) { return module->forward(x); };
    const Tensor output = is_checkpointed ? nn::checkpoint(run, input) : run(input);
    (output.to(torch::kFloat).square().sum()).backward();
    std::vector<Tensor> result{output, input.grad()};
    for (const Tensor& parameter : module->parameters()) {
      result.push_back(parameter.grad());
    }
    return result;
  };
  expect_same_bits(gradients(sim(), true, false), gradients(torch::kCPU, false, false), "plain");
  expect_same_bits(gradients(sim(), true, true), gradients(sim(), false, true), "autocast");
}

TEST_F(StateDevice, HostCopiesWaitOnceAndSeeEarlierWork) {
  std::vector<Tensor> expected;
  std::vector<Tensor> copies;
  HostCopies in_flight;
  for (int i = 0; i < 5; ++i) {
    const Tensor tensor = torch::full({1000}, i, sim(i % 2)).add_(1).mul_(2);
    copies.push_back(in_flight.add(tensor));
    tensor.zero_();  // Behind the copy, on the same stream.
    expected.push_back(torch::full({1000}, 2 * (i + 1)));
  }
  in_flight.wait();
  expect_same_bits(copies, expected, "copies");
  EXPECT_TRUE(in_flight.is_empty());
  const Tensor on_cpu = torch::ones({2});
  EXPECT_TRUE(in_flight.add(on_cpu).is_same(on_cpu));
  EXPECT_TRUE(has_elements(torch::kCPU) && has_elements(sim()) && !has_elements(torch::kMeta));
}

TensorState state_of(torch::nn::Sequential& module, torch::optim::Adam& optimizer) {
  TensorState state;
  add_state(state, "model.", module_state(*module));
  add_state(state, "optimizer.", optimizer_state(optimizer, *module));
  return state;
}

void make_step(torch::nn::Sequential& module, torch::optim::Adam& optimizer) {
  const torch::Device device = module->parameters().front().device();
  optimizer.zero_grad();
  module->forward(input_on(device)).square().sum().backward();
  optimizer.step();
}

TEST_F(StateDevice, ATrainingGoesOnFromASavedStateOnAnyDevice) {
  const auto train = [&](torch::Device before, torch::Device after) {
    const std::string path = folder_.path() + "/state.safetensors";
    {
      torch::nn::Sequential module = make_module(before);
      torch::optim::Adam optimizer(module->parameters(), torch::optim::AdamOptions(0.1));
      torch::manual_seed(2);
      make_step(module, optimizer);
      make_step(module, optimizer);
      save_state(path, state_of(module, optimizer));
    }
    torch::nn::Sequential module = make_module(after);
    torch::optim::Adam optimizer(module->parameters(), torch::optim::AdamOptions(0.5));
    const TensorState state = load_state(path);
    load_module_state(*module, state_below(state, "model."));
    load_optimizer_state(optimizer, *module, state_below(state, "optimizer."));
    torch::manual_seed(4);
    make_step(module, optimizer);
    EXPECT_EQ(module->parameters().front().device(), after);
    return module->parameters();
  };
  const std::vector<Tensor> expected = train(torch::kCPU, torch::kCPU);
  expect_same_bits(train(sim(), sim(1)), expected, "from device to device");
  expect_same_bits(train(sim(), torch::kCPU), expected, "from device to CPU");
  expect_same_bits(train(torch::kCPU, sim()), expected, "from CPU to device");
}

TEST_F(StateDevice, PartsOfDeviceTensorsAreSnapshots) {
  const auto save = [&](const Group& group, torch::Device device) {
    const std::string folder = folder_.path() + (device.is_cpu() ? "/cpu" : "/device");
    checkpoint::Saver saver(*group, folder);
    const Tensor big = torch::arange(60000, torch::kFloat).view({600, 100}).to(device);
    const Tensor strange = torch::arange(6, torch::kFloat).view({2, 3}).to(device).t();
    const Tensor own = torch::full({3}, group->rank(), device);
    const StateParts parts = parts_to_save(*group,
                                           {{"big", big}, {"strange", strange}},
                                           {{"own" + std::to_string(group->rank()), own}});
    for (const checkpoint::TensorPart& part : parts.parts) {
      EXPECT_EQ(part.snapshot != nullptr, !device.is_cpu()) << part.tensor.name;
    }
    saver.save_async(1, parts.parts, parts.common);
    own.zero_();
    big.zero_();
    saver.wait();
    return load_state(folder);
  };
  run_ranks(2, [&](const Group& group) {
    const TensorState here = save(group, torch::kCPU);
    const TensorState there = save(group, sim(group->rank()));
    ASSERT_EQ(here.size(), 4U);
    ASSERT_EQ(there.size(), 4U);
    for (const auto& [name, tensor] : here) {
      EXPECT_TRUE(has_same_bits(there.at(name), tensor)) << name;
    }
    EXPECT_THAT([&] { (void)parts_to_save(*group, {{"m", torch::ones({2}, torch::kMeta)}}); },
                test::throws_error(ErrorCode::kInvalidArgument, "another device than \"meta\""));
  });
}

TEST_F(StateDevice, LocalDeviceFollowsLocalRank) {
  const auto device = [](std::map<std::string, std::string> variables, int n_devices) {
    return local_device(test::fake_environment(std::move(variables)), at::kPrivateUse1, n_devices);
  };
  EXPECT_EQ(device({{"LOCAL_RANK", "3"}}, 4), sim(3));
  EXPECT_EQ(device({}, 4), sim());
  EXPECT_EQ(device({{"LOCAL_RANK", "3"}}, 0), torch::Device(torch::kCPU));
  EXPECT_EQ(local_device().type(), at::kPrivateUse1);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(device({{"LOCAL_RANK", "3"}, {"CUDA_VISIBLE_DEVICES", "0,5"}}, 2), sim(1));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("local rank 3"),
                    HasSubstr("shares sim:1 with another"),
                    HasSubstr("CUDA_VISIBLE_DEVICES is \"0,5\""),
                    HasSubstr("start no more ranks on a node than it has devices")));
  EXPECT_THAT([&] { (void)device({{"LOCAL_RANK", "abc"}}, 1); },
              ::testing::ThrowsMessage<Error>(HasSubstr("LOCAL_RANK")));
}

}  // namespace
}  // namespace unisono::testing
