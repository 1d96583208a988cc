// Checks and copies by DistributedDataParallel during construction.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/tensor.h"

#include "canonical.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the message of the Error that `body` must throw.
std::string message_of(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

// Wraps a module per rank, which must fail in the same way on all ranks. Returns the messages.
std::vector<std::string> mismatches(
    int world_size,
    const std::function<torch::nn::Sequential(int rank)>& module_of,
    const std::function<DistributedDataParallelOptions(int rank)>& options_of = [](int) {
      return DistributedDataParallelOptions();
    }) {
  std::vector<std::string> messages(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
    const int rank = group->rank();
    messages[static_cast<std::size_t>(rank)] = message_of(ErrorCode::kMismatch, [&] {
      const DistributedDataParallel model(module_of(rank), group, options_of(rank));
    });
    const at::Tensor one = torch::ones({1});
    all_reduce(*group, one);
    EXPECT_EQ(one.item<float>(), static_cast<float>(world_size)) << "the group must stay usable";
  });
  return messages;
}

torch::nn::Sequential two_layers(std::int64_t width) {
  return torch::nn::Sequential(torch::nn::Linear(3, width), torch::nn::Linear(width, 2));
}

TEST(DdpConstruction, EveryRankStartsWithRankZerosBits) {
  constexpr int kWorldSize = 4;
  std::vector<std::uint64_t> before(kWorldSize);
  std::vector<std::uint64_t> after(kWorldSize);
  run_ranks(kWorldSize, [&](const std::shared_ptr<ProcessGroup>& group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    torch::nn::Sequential module(torch::nn::Conv2d(3, 5, 3), torch::nn::BatchNorm2d(5));
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : module->parameters()) {
      parameter.add_(static_cast<double>(rank));
    }
    for (const at::Tensor& buffer : module->buffers()) {
      buffer.add_(group->rank());
    }
    const auto hash = [&] {
      std::vector<at::Tensor> all = module->parameters();
      for (const at::Tensor& buffer : module->buffers()) {
        all.push_back(buffer);
      }
      return hash_tensors(all);
    };
    before[rank] = hash();
    const DistributedDataParallel model(module, group);
    after[rank] = hash();
  });
  for (std::size_t rank = 0; rank < kWorldSize; ++rank) {
    EXPECT_EQ(after[rank], before[0]) << "rank " << rank;
    EXPECT_EQ(rank == 0, before[rank] == before[0]) << "ranks must start out different";
  }
}

TEST(DdpConstruction, TensorsLargerThanAPartAndNotContiguousArriveToo) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    constexpr std::int64_t kRows = 2300;  // 2300 times 2048 floats: more than 16 MiB.
    torch::nn::Sequential module(torch::nn::Linear(2048, kRows), torch::nn::Conv2d(8, 8, 3));
    const double mine = group->rank() + 1;
    const torch::NoGradGuard no_grad;
    module->parameters()[0].fill_(mine);
    at::Tensor conv = module->parameters()[2];
    const at::Tensor expected = torch::arange(conv.numel()).to(torch::kFloat).view_as(conv);
    conv.set_data((expected * mine).contiguous(at::MemoryFormat::ChannelsLast));
    const DistributedDataParallel model(module, group);
    EXPECT_TRUE(module->parameters()[0].eq(1).all().item<bool>());
    EXPECT_TRUE(conv.equal(expected));
    EXPECT_FALSE(conv.is_contiguous()) << "the layout is the rank's own";
  });
}

TEST(DdpConstruction, AnotherShapeNamesParameterRanksAndShapesOnAllRanks) {
  for (const std::string& message :
       mismatches(3, [](int rank) { return two_layers(rank == 2 ? 5 : 4); })) {
    EXPECT_THAT(message,
                HasSubstr("parameter '0.weight' is f32[4, 3] on rank 0 and f32[5, 3] on rank 2"));
  }
}

TEST(DdpConstruction, AnotherTypeLayoutOrFrozenParameterIsNamed) {
  for (const std::string& message : mismatches(2, [](int rank) {
         torch::nn::Sequential module = two_layers(4);
         if (rank == 1) {
           module[1]->to(torch::kDouble);
         }
         return module;
       })) {
    EXPECT_THAT(message, HasSubstr("'1.weight' is f32[2, 4] on rank 0 and f64[2, 4] on rank 1"));
  }
  for (const std::string& message : mismatches(2, [](int rank) {
         torch::nn::Sequential module = two_layers(4);
         module->parameters()[1].set_requires_grad(rank == 0);
         return module;
       })) {
    EXPECT_THAT(message,
                HasSubstr("'0.bias' is f32[4] on rank 0 and f32[4] without gradient on rank 1"));
  }
  for (const std::string& message : mismatches(2, [](int rank) {
         torch::nn::Sequential module(torch::nn::Conv2d(2, 2, 2));
         if (rank == 1) {
           at::Tensor weight = module->parameters()[0];
           weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
         }
         return module;
       })) {
    EXPECT_THAT(message, AllOf(HasSubstr("'0.weight'"), HasSubstr("with strides [8, 1, 4, 2]")));
  }
}

TEST(DdpConstruction, AnotherNumberOfParametersNamesTheMissingOne) {
  for (const std::string& message : mismatches(2, [](int rank) {
         torch::nn::Sequential module = two_layers(4);
         if (rank == 1) {
           module->push_back(torch::nn::Linear(2, 2));
         }
         return module;
       })) {
    EXPECT_THAT(message,
                HasSubstr("rank 1 has parameter '2.weight' (f32[2, 2]), which rank 0 lacks"));
  }
}

TEST(DdpConstruction, DifferentBuffersAndOptionsAreNamed) {
  for (const std::string& message : mismatches(2, [](int rank) {
         torch::nn::Sequential module(torch::nn::BatchNorm1d(3));
         if (rank == 1) {
           at::Tensor mean = module->named_buffers()["0.running_mean"];
           mean.set_data(torch::zeros({4}));
         }
         return module;
       })) {
    EXPECT_THAT(message, HasSubstr("buffer '0.running_mean' is f32[3] on rank 0 and f32[4]"));
  }
}

TEST(DdpConstruction, EachOptionThatDiffersIsNamed) {
  const std::vector<std::pair<DistributedDataParallelOptions, std::string>> options{
      {{.bucket_cap_mb = 2}, "bucket_cap_mb is 25 on rank 0 and 2 on rank 1"},
      {{.first_bucket_cap_mb = 2}, "first_bucket_cap_mb is 1 on rank 0 and 2 on rank 1"},
      {{.broadcast_buffers = false}, "broadcast_buffers is true on rank 0 and false on rank 1"},
      {{.find_unused_parameters = true},
       "find_unused_parameters is false on rank 0 and true on rank 1"},
      {{.non_finite_gradients = NonFiniteGradients::kSkip},
       "non_finite_gradients is 0 on rank 0 and 2 on rank 1"},
      {{.weigh_samples = true}, "weigh_samples is false on rank 0 and true on rank 1"},
      {{.logical_ranks = 2}, "logical_ranks is 0 on rank 0 and 2 on rank 1"},
      {{.shard_seed = 7}, "shard_seed is 0 on rank 0 and 7 on rank 1"},
      {{.shard_buffers = ShardBuffers::kMean}, "shard_buffers is 0 on rank 0 and 1 on rank 1"},
      {{.parameter_drift = ParameterDrift::kThrow},
       "parameter_drift is 1 on rank 0 and 2 on rank 1"}};
  for (const auto& [other, expected] : options) {
    for (const std::string& message : mismatches(
             2,
             [](int) { return two_layers(4); },
             [&](int rank) { return rank == 1 ? other : DistributedDataParallelOptions(); })) {
      EXPECT_THAT(message, HasSubstr("option " + expected));
    }
  }
}

TEST(DdpConstruction, WhatCannotBeWrappedIsExplained) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    EXPECT_THAT(message_of(ErrorCode::kInvalidArgument,
                           [&] {
                             torch::nn::Sequential module = two_layers(4);
                             for (at::Tensor& parameter : module->parameters()) {
                               parameter.set_requires_grad(false);
                             }
                             const DistributedDataParallel model(module, group);
                           }),
                HasSubstr("no parameter that requires a gradient"));
    EXPECT_THAT(message_of(ErrorCode::kInvalidArgument,
                           [&] {
                             const DistributedDataParallel model(
                                 two_layers(4), group, {.bucket_cap_mb = 0});
                           }),
                HasSubstr("bucket_cap_mb is 0"));
    EXPECT_THAT(message_of(ErrorCode::kInvalidArgument,
                           [&] {
                             const DistributedDataParallel model(two_layers(4),
                                                                 std::shared_ptr<ProcessGroup>());
                           }),
                HasSubstr("process group is null"));
  });
}

// Returns a module with two parameters, on the CPU or on a device of another kind.
std::shared_ptr<torch::nn::Module> module_on(torch::Device first, torch::Device second) {
  auto module = std::make_shared<torch::nn::Module>();
  module->register_parameter("a", torch::ones({2}, first));
  module->register_parameter("b", torch::ones({2}, second));
  return module;
}

TEST(DdpConstruction, DevicesAreForModulesOnOneOfThem) {
  struct Case {
    std::shared_ptr<torch::nn::Module> module;
    DistributedDataParallelOptions options;
    std::string message;
  };

  const torch::Device cpu(torch::kCPU);
  const torch::Device meta(torch::kMeta);
  const std::vector<Case> cases{
      {module_on(cpu, cpu),
       {.device_ids = {0}},
       "device_ids is {0}, but the module is in CPU memory, where there is no device to choose: "
       "leave device_ids and output_device out"},
      {module_on(cpu, cpu),
       {.output_device = 0},
       "output_device is 0, but the module is in CPU memory"},
      {module_on(cpu, cpu),
       {.device_ids = {1}, .output_device = 2},
       "device_ids is {1} and output_device is 2, but"},
      {module_on(cpu, cpu),
       {.device_ids = {0, 1}},
       "device_ids is {0, 1}, but a rank trains on one device: start a rank for each"},
      {module_on(cpu, meta),
       {.device_ids = {0}},
       "device_ids is {0}, but the module is on several devices ('a' on cpu, 'b' on meta)"},
      {module_on(meta, meta), {}, "parameter 'a' is on meta; only dense tensors on the CPU"},
      {module_on(cpu, meta), {}, "parameter 'b' is on meta; only dense tensors on the CPU"}};
  run_ranks(1, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const auto& [module, options, message] : cases) {
      EXPECT_THAT(message_of(ErrorCode::kInvalidArgument,
                             [&] { const DistributedDataParallel model(module, group, options); }),
                  HasSubstr(message));
    }
  });
}

TEST(DdpConstruction, ASharedParameterCountsOnce) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const torch::nn::Linear layer(3, 3);
    DistributedDataParallel model(torch::nn::Sequential(layer, layer),
                                  group,
                                  {.bucket_cap_mb = 1e-6, .first_bucket_cap_mb = 1e-6});
    EXPECT_EQ(model.n_buckets(), 2) << "one for the weight, one for the bias";
    // Computes the gradient of each rank's input alone with a copy.
    at::Tensor sum = torch::zeros({3, 3});
    for (const double input : {1.0, 2.0}) {
      const at::Tensor weight = layer->weight.detach().clone().requires_grad_();
      const at::Tensor bias = layer->bias.detach();
      const at::Tensor once = torch::linear(torch::full({1, 3}, input), weight, bias);
      torch::linear(once, weight, bias).sum().backward();
      sum += weight.grad();
    }
    model(torch::full({1, 3}, group->rank() + 1.0)).sum().backward();
    EXPECT_TRUE(layer->weight.grad().allclose(sum / 2));
  });
}

}  // namespace
}  // namespace unisono::testing
