// Training whose bits do not depend on the number of ranks.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/hash.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "scalars.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;
using Net = DistributedDataParallel<ConvNet>;

constexpr int kBatch = 4;
constexpr double kRate = 0.1;

// Limits that give several buckets.
DistributedDataParallelOptions with_shards(int n_shards) {
  return {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001, .logical_ranks = n_shards};
}

torch::Tensor loss_of_shard(Net& net, int step, int shard) {
  return loss_of(net, make_sample(step, shard, kBatch, torch::kFloat));
}

void train_step(Net& net, torch::optim::Optimizer& optimizer, int step) {
  net.for_each_shard([&](int shard) { loss_of_shard(net, step, shard).backward(); });
  optimizer.step();
}

std::vector<at::Tensor> trained_by_one_process(int n_shards, int n_steps) {
  ConvNet net = make_seeded_net();
  torch::optim::SGD optimizer(net->parameters(), kRate);
  for (int step = 0; step < n_steps; ++step) {
    accumulate_shards(net->parameters(), n_shards, [&](int shard) {
      loss_of(net, make_sample(step, shard, kBatch, torch::kFloat)).backward();
    });
    optimizer.step();
  }
  return clone_all(net->parameters());
}

TEST(LogicalRanks, AnyNumberOfRanksComesToTheBitsOfOneProcess) {
  for (const int n_shards : {5, 6, 8}) {
    std::vector<at::Tensor> expected;
    run_ranks(1, [&](const Group&) { expected = trained_by_one_process(n_shards, 3); });
    for (int world_size = 1; world_size <= n_shards; ++world_size) {
      run_ranks(world_size, [&](const Group& group) {
        Net net(make_seeded_net(), group, with_shards(n_shards));
        torch::optim::SGD optimizer(net.parameters(), kRate);
        for (int step = 0; step < 3; ++step) {
          train_step(net, optimizer, step);
        }
        EXPECT_TRUE(is_bit_equal(net.parameters(), expected))
            << n_shards << " shards on " << world_size << " ranks";
      });
    }
  }
}

TEST(LogicalRanks, TheNumberOfRanksMayChangeInTheMiddle) {
  constexpr int kShards = 8;
  std::vector<at::Tensor> expected;
  run_ranks(1, [&](const Group&) { expected = trained_by_one_process(kShards, 4); });
  ConvNet saved = make_seeded_net();
  constexpr std::array kWorlds{4, 3, 1, 5};
  for (std::size_t step = 0; step < kWorlds.size(); ++step) {
    ConvNet next;
    run_ranks(kWorlds[step], [&](const Group& group) {
      Net net(clone_of(saved), group, with_shards(kShards));
      net.set_shard_step(static_cast<std::int64_t>(step));
      torch::optim::SGD optimizer(net.parameters(), kRate);
      train_step(net, optimizer, static_cast<int>(step));
      EXPECT_EQ(net.shard_step(), static_cast<std::int64_t>(step) + 1);
      if (group->rank() == 0) {
        next = clone_of(net.module());
      }
    });
    saved = next;
  }
  EXPECT_TRUE(is_bit_equal(saved->parameters(), expected));
}

torch::nn::Sequential make_normed_net() {
  const ConvNet seeded = make_seeded_net();
  torch::nn::Sequential net(
      torch::nn::Linear(144, 6), torch::nn::BatchNorm1d(6), torch::nn::Linear(6, 10));
  const torch::NoGradGuard no_grad;
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor values = torch::arange(parameter.numel(), torch::kFloat).sin();
    parameter.copy_(values.view(parameter.sizes()));
  }
  return net;
}

TEST(LogicalRanks, BuffersBecomeTheFirstShardsOrTheMean) {
  constexpr int kShards = 6;
  std::vector<std::uint64_t> of_rules;
  for (const ShardBuffers rule : {ShardBuffers::kFirstShard, ShardBuffers::kMean}) {
    std::vector<std::uint64_t> hashes;
    for (const int world_size : {1, 2, 3, 4, 6}) {
      run_ranks(world_size, [&](const Group& group) {
        DistributedDataParallelOptions options = with_shards(kShards);
        options.shard_buffers = rule;
        DistributedDataParallel<torch::nn::Sequential> net(make_normed_net(), group, options);
        torch::optim::SGD optimizer(net.parameters(), kRate);
        for (int step = 0; step < 3; ++step) {
          net.for_each_shard([&](int shard) {
            const Sample sample = make_sample(step, shard, kBatch, torch::kFloat);
            torch::nn::functional::cross_entropy(net(sample.images.flatten(1)), sample.labels)
                .backward();
          });
          optimizer.step();
        }
        std::vector<at::Tensor> state = net.parameters();
        const std::vector<at::Tensor> buffers = net.module()->buffers();
        state.insert(state.end(), buffers.begin(), buffers.end());
        EXPECT_EQ(buffers[2].item<std::int64_t>(), 3);
        const std::uint64_t hash = hash_tensors(state);
        if (group->rank() == 0) {
          hashes.push_back(hash);
        }
        group->barrier();
        EXPECT_EQ(hash, hashes.back()) << "rank " << group->rank();
      });
      EXPECT_EQ(hashes.back(), hashes.front()) << world_size << " ranks";
    }
    of_rules.push_back(hashes.front());
  }
  EXPECT_NE(of_rules[0], of_rules[1]);
}

TEST(LogicalRanks, AMeanOfBuffersIsThatOfAllShards) {
  for (const ShardBuffers rule : {ShardBuffers::kFirstShard, ShardBuffers::kMean}) {
    run_ranks(2, [&](const Group& group) {
      const torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(1).momentum(1.0));
      DistributedDataParallel model(norm, group, {.logical_ranks = 4, .shard_buffers = rule});
      model.for_each_shard([&](int shard) {
        model(torch::tensor({{shard + 0.5}, {shard + 1.5}})).sum().backward();
      });
      EXPECT_EQ(norm->running_mean.item<double>(), rule == ShardBuffers::kMean ? 2.5 : 1);
    });
  }
}

TEST(LogicalRanks, AGradientThatAShardDoesNotHaveCountsAsZero) {
  constexpr int kShards = 4;
  for (int absent = 0; absent < kShards; ++absent) {
    for (int world_size = 1; world_size <= kShards; ++world_size) {
      run_ranks(world_size, [&](const Group& group) {
        Model model(Scalars(), group, {.find_unused_parameters = true, .logical_ranks = kShards});
        model.for_each_shard([&](int shard) {
          const torch::Tensor loss = model(Factors{1, 0, 0});
          (shard == absent ? loss : loss + model.module()->w[1] * -0.0).backward();
        });
        const std::optional<float> sum = gradients_of(model)[1];
        EXPECT_EQ(sum, 0);
        EXPECT_FALSE(std::signbit(sum.value_or(0)))
            << "-0 and 0 is 0; absent in shard " << absent << " of " << world_size << " ranks";
      });
    }
  }
}

TEST(LogicalRanks, ParametersOfSomeShardsOnlyAreAveragedOverAll) {
  constexpr int kShards = 8;
  std::vector<std::vector<at::Tensor>> results;
  for (const int world_size : {1, 2, 3, 8}) {
    run_ranks(world_size, [&](const Group& group) {
      DistributedDataParallelOptions options = with_shards(kShards);
      options.find_unused_parameters = true;
      DistributedDataParallel<ConvNet> net(make_seeded_net(), group, options);
      net.for_each_shard([&](int shard) {
        const Sample sample = make_sample(0, shard, kBatch, torch::kFloat);
        const torch::Tensor output = net(sample.images);
        // Only the loss of shard 2 depends on the whole net.
        (shard == 2 ? output.sum() : net.module()->conv->bias.sum() + 0 * output.sum().detach())
            .backward();
      });
      if (group->rank() == 0) {
        results.push_back(clone_gradients(net.parameters()));
      }
    });
    EXPECT_TRUE(results.back().back().defined());
    EXPECT_TRUE(is_bit_equal(results.back(), results.front())) << world_size << " ranks";
  }
}

TEST(LogicalRanks, ARankHasItsShareOfTheShards) {
  run_ranks(3, [](const Group& group) {
    const Net net(make_seeded_net(), group, with_shards(8));
    if (group->rank() == 1) {
      EXPECT_THAT(net.shards(), ElementsAre(2, 3, 4));
    }
  });
}

TEST(LogicalRanks, WrongUseIsExplained) {
  run_ranks(1, [](const Group& group) {
    Net net(make_seeded_net(), group, with_shards(2));
    EXPECT_THAT([&] { net.for_each_shard([](int) {}); },
                throws_error(ErrorCode::kInvalidArgument, "shard 0 made no backward pass"));
    EXPECT_THAT(
        [&] {
          net.for_each_shard([&](int shard) {
            loss_of_shard(net, 0, shard).backward();
            loss_of_shard(net, 0, shard).backward();
          });
        },
        throws_error(ErrorCode::kInvalidArgument, "shard 0 calls backward() a second time"));
    EXPECT_THAT([&] { loss_of_shard(net, 0, 0).backward(); },
                throws_error(ErrorCode::kInvalidArgument, "in for_each_shard() only"));
    EXPECT_THAT([&] { net.register_comm_hook(nullptr, allreduce_hook); },
                throws_error(ErrorCode::kInvalidArgument, "canonical order only"));
    EXPECT_THAT([&] { net.join([] {}); },
                throws_error(ErrorCode::kInvalidArgument, "there is no join()"));
    Net plain(make_seeded_net(), group);
    EXPECT_THAT([&] { plain.for_each_shard([](int) {}); },
                throws_error(ErrorCode::kInvalidArgument, "logical_ranks is not set"));
    ConvNet half = make_seeded_net();
    half->to(torch::kBFloat16);
    EXPECT_THAT([&] { const Net refused(half, group, with_shards(2)); },
                throws_error(ErrorCode::kInvalidArgument, "'conv.weight' is bf16", "f32 or f64"));
  });
  run_ranks(3, [](const Group& group) {
    EXPECT_THAT([&] { const Net refused(make_seeded_net(), group, with_shards(2)); },
                throws_error(ErrorCode::kInvalidArgument, "logical_ranks is 2", "3 ranks"));
  });
}

TEST(LogicalRanks, AShardThatThrowsEndsTheStepOnAllRanksAndTheNextOneIsWhole) {
  for (const int n_shards : {6, 8}) {
    std::vector<at::Tensor> expected;
    run_ranks(1, [&](const Group&) { expected = trained_by_one_process(n_shards, 1); });
    run_ranks(3, [&](const Group& group) {
      Net net(make_seeded_net(), group, with_shards(n_shards));
      torch::optim::SGD optimizer(net.parameters(), kRate);
      const auto failing_step = [&] {
        net.for_each_shard([&](int shard) {
          if (shard == 2) {
            throw std::runtime_error("no batch");
          }
          loss_of_shard(net, 0, shard).backward();
        });
      };
      if (net.shards().front() <= 2 && 2 <= net.shards().back()) {
        EXPECT_THROW(failing_step(), std::runtime_error);
      } else {
        EXPECT_THAT(failing_step, throws_error(ErrorCode::kMismatch, "another rank's backward"));
      }
      EXPECT_EQ(net.shard_step(), 0);
      train_step(net, optimizer, 0);
      EXPECT_TRUE(is_bit_equal(net.parameters(), expected));
    });
  }
}

// tests/torch/logical_ranks_program.cpp also tests the numbers of dropout, with processes as ranks.
TEST(LogicalRanks, RandomNumbersGoOnAsIfThereHadBeenNoStep) {
  run_ranks(1, [](const Group& group) {
    Net net(make_seeded_net(), group, with_shards(2));
    torch::manual_seed(5);
    const at::Tensor expected = torch::rand({3});
    torch::manual_seed(5);
    std::vector<at::Tensor> of_shards;
    const auto step = [&] {
      net.for_each_shard([&](int shard) {
        of_shards.push_back(torch::rand({3}));
        loss_of_shard(net, 0, shard).backward();
      });
    };
    step();
    EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
    step();
    net.set_shard_step(0);
    step();
    for (std::size_t i = 0; i < of_shards.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_EQ(torch::equal(of_shards[i], of_shards[j]), i == j + 4)
            << "of shards " << i << " and " << j;
      }
    }
  });
}

}  // namespace
}  // namespace unisono::testing
