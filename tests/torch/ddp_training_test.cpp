// Compares training under DistributedDataParallel with equivalent training in one process.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/average_gradients.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/tensor.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

constexpr std::int64_t kBatchSize = 8;

torch::optim::SGD make_optimizer(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
}

// Trains in one process that computes the ranks' shards and adds the gradients in the order of the
// ranks.
std::vector<at::Tensor> train_alone(ConvNet model, int n_shards, int n_steps) {
  const std::vector<at::Tensor> parameters = model->parameters();
  auto optimizer = make_optimizer(parameters);
  const torch::Dtype dtype = parameters.front().scalar_type();
  for (int step = 0; step < n_steps; ++step) {
    accumulate_shards(parameters, n_shards, [&](int shard) {
      loss_of(model, make_sample(step, shard, kBatchSize, dtype)).backward();
    });
    optimizer.step();
  }
  return clone_all(parameters);
}

// Trains on ranks that are threads. Compares each rank's parameters with train_alone().
void expect_equal_to_one_process(int world_size,
                                 int n_steps,
                                 const DistributedDataParallelOptions& options = {}) {
  run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(ConvNet(), group, options);
    const ConvNet start = clone_of(model.module());
    auto optimizer = make_optimizer(model.parameters());
    for (int step = 0; step < n_steps; ++step) {
      optimizer.zero_grad();
      loss_of(model, make_sample(step, group->rank(), kBatchSize, torch::kFloat)).backward();
      optimizer.step();
    }
    EXPECT_TRUE(is_bit_equal(model.parameters(), train_alone(start, world_size, n_steps)))
        << "rank " << group->rank();
  });
}

class DdpTraining : public ::testing::TestWithParam<int> {};

TEST_P(DdpTraining, EqualsOneProcessThatComputesTheSameShards) {
  expect_equal_to_one_process(GetParam(), 6);
}

TEST_P(DdpTraining, EqualsOneProcessWhateverTheBuckets) {
  expect_equal_to_one_process(
      GetParam(), 4, {.bucket_cap_mb = 0.001, .first_bucket_cap_mb = 0.0001});
  expect_equal_to_one_process(
      GetParam(), 4, {.bucket_cap_mb = 0.002, .find_unused_parameters = true});
}

TEST_P(DdpTraining, EqualsTheJoinedBatchInFloat64) {
  const int world_size = GetParam();
  constexpr int kTrainingSteps = 20;
  run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
    ConvNet net;
    net->to(torch::kDouble);
    DistributedDataParallel model(net, group);
    ConvNet alone = clone_of(net);
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    torch::optim::SGD optimizer_alone(alone->parameters(), 0.1);
    for (int step = 0; step < kTrainingSteps; ++step) {
      optimizer.zero_grad();
      loss_of(model, make_sample(step, group->rank(), kBatchSize, torch::kDouble)).backward();
      optimizer.step();

      std::vector<Sample> shards;
      for (int shard = 0; shard < world_size; ++shard) {
        shards.push_back(make_sample(step, shard, kBatchSize, torch::kDouble));
      }
      optimizer_alone.zero_grad();
      loss_of(alone, join(shards)).backward();
      optimizer_alone.step();
    }
    const auto mine = clone_all(model.parameters());
    const auto expected = clone_all(alone->parameters());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const double scale = expected[i].abs().max().item<double>();
      const double error = (mine[i] - expected[i]).abs().max().item<double>();
      EXPECT_LE(error, 1e-9 * scale) << "parameter " << i;
    }
  });
}

TEST_P(DdpTraining, GradientsAreTheMeanAndTheSameBitsOnEveryRank) {
  const int world_size = GetParam();
  std::vector<std::vector<std::uint64_t>> hashes(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
    DistributedDataParallel model(ConvNet(), group);
    ConvNet alone = clone_of(model.module());
    loss_of(model, make_sample(0, group->rank(), kBatchSize, torch::kFloat)).backward();
    accumulate_shards(alone->parameters(), world_size, [&](int shard) {
      loss_of(alone, make_sample(0, shard, kBatchSize, torch::kFloat)).backward();
    });
    EXPECT_TRUE(
        is_bit_equal(clone_gradients(model.parameters()), clone_gradients(alone->parameters())));
    for (const at::Tensor& gradient : clone_gradients(model.parameters())) {
      hashes[static_cast<std::size_t>(group->rank())].push_back(hash_tensors({gradient}));
    }
  });
  for (const auto& of_rank : hashes) {
    EXPECT_EQ(of_rank, hashes.front());
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, DdpTraining, ::testing::Values(1, 2, 3, 4));

TEST(DdpAccumulation, FiftyStepsEqualAccumulationInOneProcess) {
  for (const int world_size : {4, 8}) {
    expect_equal_to_one_process(world_size, 50);
  }
}

TEST(AverageGradients, IsTheMeanAndEqualsOneAllReducePerParameter) {
  constexpr int kWorldSize = 3;
  run_ranks(kWorldSize, [&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Sequential model(torch::nn::Linear(5, 7), torch::nn::Linear(7, 2));
    model[1]->to(torch::kDouble);
    const std::vector<at::Tensor> parameters = model->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() =
          torch::full_like(parameters[i], 0.1 * (group->rank() + 1) + static_cast<double>(i));
    }
    const std::vector<at::Tensor> one_by_one = clone_gradients(parameters);
    for (const at::Tensor& gradient : one_by_one) {
      all_reduce(*group, gradient, {.op = kAvg});
    }
    const at::Tensor storage = parameters[0].grad();
    average_gradients(*group, parameters);
    EXPECT_TRUE(is_bit_equal(clone_gradients(parameters), one_by_one));
    EXPECT_TRUE(storage.is_same(parameters[0].grad())) << "the gradient tensor must stay";
    std::vector<at::Tensor> of_ranks;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      of_ranks.push_back(torch::full_like(parameters[1], 0.1 * (rank + 1) + 1));
    }
    EXPECT_TRUE(is_bit_equal({parameters[1].grad()}, {canonical_mean(of_ranks)}));
  });
}

}  // namespace
}  // namespace unisono::testing
