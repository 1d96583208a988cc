// Modules that compute with several ranks or devices, on simulated devices and on the CPU.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/average_gradients.h"
#include "unisono/torch/ddp/features/finite_check.h"
#include "unisono/torch/ddp/model_check.h"
#include "unisono/torch/nn/data_parallel.h"
#include "unisono/torch/nn/sync_batch_norm.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/functions.h"
#include "unisono/torch/parallel/tensor/layers.h"

#include "pipelines.h"
#include "rank_threads.h"
#include "sim_test.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using test::throws_error;
using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Group = std::shared_ptr<ProcessGroup>;

class NnDevice : public SimTest {};

// Returns a tensor of numbers that depend on the seed only.
Tensor numbers(at::IntArrayRef sizes, int seed) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return torch::arange(count, torch::kFloat).mul_(0.7 + 0.1 * seed).sin_().view(sizes);
}

torch::nn::Sequential make_net(torch::Device device) {
  torch::nn::Sequential net(torch::nn::Linear(6, 8),
                            torch::nn::BatchNorm1d(8),
                            torch::nn::Tanh(),
                            torch::nn::Linear(8, 3));
  fill(*net);
  net->to(device);
  return net;
}

// Returns loss, gradients, parameters and buffers after some steps.
Tensors train_in_parallel(torch::Device device, const nn::DataParallelOptions& options) {
  const torch::nn::Sequential net = make_net(device);
  nn::DataParallel model(net, options);
  torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  Tensors results;
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    const Tensor input = numbers({11, 6}, step).to(device).set_requires_grad(true);
    const Tensor loss = model(input).square().sum();
    loss.backward();
    optimizer.step();
    results.push_back(loss);
    results.push_back(input.grad());
  }
  for (const Tensor& parameter : net->parameters()) {
    results.push_back(parameter.grad());
    results.push_back(parameter);
  }
  const Tensors buffers = net->buffers();
  results.insert(results.end(), buffers.begin(), buffers.end());
  return results;
}

TEST_F(NnDevice, DataParallelOverDevicesHasTheBitsOfReplicasOnTheCpu) {
  for (const int n_replicas : {1, 2, 4}) {
    const Tensors expected = train_in_parallel(torch::kCPU, {.n_replicas = n_replicas});
    expect_same_bits(train_in_parallel(sim(1), {.n_replicas = n_replicas}),
                     expected,
                     std::to_string(n_replicas) + " replicas");
  }
  expect_same_bits(train_in_parallel(sim(), {.devices = {sim(), sim(2)}}),
                   train_in_parallel(torch::kCPU, {.n_replicas = 2}),
                   "chosen devices");
}

TEST_F(NnDevice, DataParallelContinuesOnTheStreamsOfItsCaller) {
  const c10::impl::VirtualGuardImpl guard(sim().type());
  const c10::StreamGuard on_stream(guard.getStreamFromGlobalPool(sim(), false));
  expect_same_bits(train_in_parallel(sim(), {}),
                   train_in_parallel(torch::kCPU, {.n_replicas = 4}),
                   "on a stream of the pool");
}

TEST_F(NnDevice, DataParallelTakesInputsFromTheCpuAndAllDevicesByDefault) {
  torch::nn::Sequential net = make_net(sim(2));
  nn::DataParallel model(net);
  EXPECT_EQ(model.n_replicas(), 4U);
  torch::nn::Sequential on_cpu = make_net(torch::kCPU);
  net->eval();
  on_cpu->eval();
  const Tensor input = numbers({8, 6}, 1);
  EXPECT_EQ(model(input).device(), sim(2));
  nn::DataParallel replicas(on_cpu, {.n_replicas = 4});
  EXPECT_TRUE(has_same_bits(model(input), replicas(input)));
}

TEST_F(NnDevice, DataParallelRefusesMixedDevices) {
  const auto refuses = [](torch::nn::Sequential net,
                          const nn::DataParallelOptions& options,
                          const std::string& message) {
    EXPECT_THAT([&] { nn::DataParallel model(net, options); },
                throws_error(ErrorCode::kInvalidArgument, message));
  };
  torch::nn::Sequential mixed = make_net(sim());
  mixed[0]->to(sim(1));
  refuses(mixed, {}, "the module is on several devices (sim:1, sim:0)");
  refuses(make_net(sim()), {.devices = {sim(1)}}, "devices has sim:1, but the module is on sim:0");
  refuses(make_net(sim()), {.devices = {sim(), torch::kCPU}}, "devices has cpu");
  refuses(make_net(sim()),
          {.n_replicas = 3, .devices = {sim(), sim(1)}},
          "n_replicas is 3, but there are 2 devices");
}

// Runs `results` on two ranks on the CPU and on two devices, and compares.
template <class Results>
void compare_ranks(const Results& results, const std::string& what) {
  std::vector<Tensors> expected(2);
  run_ranks(2, [&](const Group& group) {
    expected[static_cast<std::size_t>(group->rank())] = results(group, torch::Device(torch::kCPU));
  });
  run_ranks(2, [&](const Group& group) {
    const std::string name = what + ", rank " + std::to_string(group->rank());
    expect_same_bits(results(group, sim(group->rank())),
                     expected[static_cast<std::size_t>(group->rank())],
                     name);
  });
}

TEST_F(NnDevice, SyncBatchNormHasTheBitsOfTheCpu) {
  compare_ranks(
      [](const Group& group, torch::Device device) {
        nn::SyncBatchNorm norm(torch::nn::BatchNormOptions(3), group);
        fill(*norm);
        norm->to(device);
        Tensors results;
        for (int step = 0; step < 2; ++step) {
          const Tensor input = numbers({2 + group->rank(), 3, 5}, step + group->rank())
                                   .to(device)
                                   .set_requires_grad(true);
          const Tensor output = norm->forward(input);
          output.mul(numbers({3, 5}, 4).to(device)).sum().backward();
          results.insert(results.end(), {output, input.grad()});
        }
        results.insert(results.end(),
                       {norm->weight.grad(),
                        norm->bias.grad(),
                        norm->running_mean,
                        norm->running_var,
                        norm->num_batches_tracked});
        return results;
      },
      "SyncBatchNorm");
}

TEST_F(NnDevice, DividedTransformersHaveTheBitsOfTheCpu) {
  for (const bool is_sequence_divided : {false, true}) {
    compare_ranks(
        [=](const Group& group, torch::Device device) {
          parallel::VocabParallelEmbedding embedding{nullptr};
          parallel::ParallelTransformerEncoderLayer layer{nullptr};
          Tensor output;
          {
            // Ranks that are threads draw from the same generators.
            const RandomDevices devices = device.is_cpu() ? RandomDevices{} : RandomDevices{device};
            const RandomTurn turn(devices);
            seed_random(9, devices);
            embedding = parallel::VocabParallelEmbedding(
                parallel::VocabParallelEmbeddingOptions{.num_embeddings = 10, .embedding_dim = 8},
                group);
            layer = parallel::ParallelTransformerEncoderLayer(
                parallel::ParallelTransformerEncoderLayerOptions{
                    .d_model = 8,
                    .nhead = 2,
                    .dim_feedforward = 12,
                    .dropout = 0.3,
                    .sequence_parallel = is_sequence_divided},
                group);
            embedding->to(device);
            layer->to(device);
            const Tensor ids =
                torch::arange(12, torch::kLong).remainder(10).view({6, 2}).to(device);
            Tensor hidden = embedding(ids);
            hidden = is_sequence_divided ? parallel::scatter_to_region(hidden, 0, group) : hidden;
            output = layer->forward(hidden);
          }
          output.square().sum().backward();
          parallel::sum_partial_gradients(*layer);
          const double norm = parallel::clip_grad_norm(*layer, 0.1);
          Tensors results{output, torch::tensor(norm, torch::kDouble)};
          for (const Tensor& parameter : layer->parameters()) {
            results.push_back(parameter.grad());
          }
          results.push_back(embedding->weight.grad());
          return results;
        },
        is_sequence_divided ? "divided sequence" : "whole sequence");
  }
}

TEST_F(NnDevice, CrossEntropyOfDividedClassesHasTheBitsOfTheCpu) {
  compare_ranks(
      [](const Group& group, torch::Device device) {
        const Tensor logits = numbers({4, 3}, group->rank()).to(device).set_requires_grad(true);
        const Tensor targets = torch::tensor({0, 5, 3, 2}, torch::kLong).to(device);
        const Tensor loss = parallel::vocab_parallel_cross_entropy(logits, targets, group);
        loss.backward();
        return Tensors{loss, logits.grad()};
      },
      "vocab_parallel_cross_entropy");
}

TEST_F(NnDevice, AveragesHaveTheBitsOfTheCpuAndRefuseMixedDevices) {
  compare_ranks(
      [](const Group& group, torch::Device device) {
        const Tensors parameters{numbers({3, 2}, group->rank()).to(device),
                                 numbers({5}, group->rank() + 1).to(device).to(torch::kDouble)};
        average_parameters(*group, parameters);
        return parameters;
      },
      "average_parameters");
  run_ranks(1, [](const Group& group) {
    EXPECT_THAT(
        [&] { average_parameters(*group, {torch::ones({2}, sim()), torch::ones({2})}); },
        throws_error(ErrorCode::kInvalidArgument, "a parameter is on cpu, and another on sim:0"));
  });
}

// Returns loss, outputs and gradients of some steps of a pipeline.
Tensors run_pipeline(const Group& group,
                     torch::Device device,
                     torch::nn::Sequential model,
                     const parallel::PipelineOptions& options) {
  model->to(device);
  parallel::Pipeline pipeline(group, model, options);
  Tensors results;
  for (int step = 0; step < 2; ++step) {
    results.push_back(
        pipeline.train_step(make_batch(8).to(device), make_targets(8).to(device), loss_of_classes));
  }
  results.push_back(torch::tensor(pipeline.clip_grad_norm(0.1), torch::kDouble));
  for (const NamedTensor& parameter : pipeline.named_parameters()) {
    results.push_back(parameter.tensor.grad());
  }
  results.push_back(pipeline.forward(make_batch(5).to(device)));
  return results;
}

TEST_F(NnDevice, PipelinesHaveTheBitsOfTheCpu) {
  for (const std::string& schedule : all_schedules()) {
    for (const auto mode : {nn::CheckpointMode::kNever, nn::CheckpointMode::kAlways}) {
      compare_ranks(
          [&](const Group& group, torch::Device device) {
            return run_pipeline(group,
                                device,
                                make_chain(torch::kFloat, 0.3),
                                {.schedule = schedule, .chunks = 4, .checkpoint = mode});
          },
          schedule);
    }
  }
}

TEST_F(NnDevice, PipelinesWithTiedParametersHaveTheBitsOfTheCpu) {
  compare_ranks(
      [](const Group& group, torch::Device device) {
        torch::nn::Sequential model = make_tied_chain();
        return run_pipeline(group, device, model, {.chunks = 2});
      },
      "tied");
}

TEST_F(NnDevice, ReplicasOfPipelinesHaveTheBitsOfTheCpu) {
  compare_ranks(
      [](const Group& group, torch::Device device) {
        const Group alone = group->split(group->rank(), 0);
        torch::nn::Sequential model = make_chain();
        return run_pipeline(alone, device, model, {.chunks = 2, .data_group = group});
      },
      "replicas");
}

TEST_F(NnDevice, PipelinesRefuseAStageOnSeveralDevices) {
  run_ranks(1, [](const Group& group) {
    torch::nn::Sequential model = make_chain();
    model->to(sim());
    model->parameters().back().set_data(model->parameters().back().detach().to(sim(1)));
    EXPECT_THAT([&] { parallel::Pipeline pipeline(group, model, {}); },
                throws_error(ErrorCode::kInvalidArgument,
                             "the rank's stages are on several devices",
                             "a rank computes on one"));
  });
}

TEST_F(NnDevice, GradientsOnADeviceAreExaminedWithOneWait) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  run_ranks(1, [&](const Group& group) {
    ddp::PassContext context{.group = group,
                             .options = {},
                             .caps = {},
                             .parameters = {},
                             .is_sparse = {},
                             .buffers = {}};
    for (const char* const name : {"a", "b", "c", "d"}) {
      context.parameters.push_back({.name = name, .tensor = torch::ones({3}, sim())});
    }
    const auto flags_of = [&](const Tensors& gradients) {
      ddp::FiniteCheck check(context);
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        check.inspect(i, gradients[i]);
      }
      return check.flags();
    };
    const Tensor good = torch::full({4}, -3.0F, sim());
    const Tensor half = torch::full({4}, 60000.0F, sim()).to(torch::kHalf);
    const Tensor counts = torch::ones({2}, torch::kLong).to(sim());
    const Tensor large = torch::complex(torch::full({2}, 3e38F), torch::full({2}, 3e38F)).to(sim());
    EXPECT_EQ(flags_of({good, half, counts, large}), 0U);
    EXPECT_EQ(flags_of({good, half, torch::full({2}, -kInfinity, sim())}), 1U);
    EXPECT_EQ(flags_of({good, half * 2}), 1U);
    EXPECT_EQ(flags_of({good.div(0).mul(0), good}), 1U);
    EXPECT_EQ(flags_of({}), 0U);
  });
}

TEST_F(NnDevice, AModelOnSeveralDevicesIsRefused) {
  const auto named = [](const char* name, torch::Device device) {
    return NamedTensor{.name = name, .tensor = torch::ones({2}, device)};
  };
  EXPECT_THAT([&] { (void)ddp::properties_of({named("a", sim())}, {named("b", sim(1))}, {}, {}); },
              throws_error(ErrorCode::kInvalidArgument,
                           "on several devices ('a' on sim:0, 'b' on sim:1)",
                           "module.to(device)"));
  ddp::check_devices({1}, 1, {named("a", sim(1))});
  EXPECT_THAT(
      [&] { ddp::check_devices({0}, {}, {named("a", sim(1))}); },
      throws_error(ErrorCode::kInvalidArgument, "device_ids is {0}, but the module is on sim:1"));
}

}  // namespace
}  // namespace unisono::testing
