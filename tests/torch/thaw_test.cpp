// Parameters that are frozen when their module is wrapped and thawed during the training.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using Group = std::shared_ptr<ProcessGroup>;
using Net = DistributedDataParallel<ConvNet>;
using Gradients = std::vector<std::optional<float>>;

constexpr int kThawedSteps = 5;
constexpr int kThawed = 2;  // Thawed before this step, the third.
constexpr int kBatch = 4;

// Limits that give several buckets.
DistributedDataParallelOptions small_buckets() {
  return {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001};
}

// Freezes or thaws the first layer and a later weight.
void set_trained(const ConvNet& net, bool is_trained) {
  for (const at::Tensor& parameter : net->conv->parameters()) {
    parameter.set_requires_grad(is_trained);
  }
  net->head->weight.set_requires_grad(is_trained);
}

ConvNet make_frozen_net() {
  ConvNet net = make_seeded_net();
  set_trained(net, false);
  return net;
}

std::vector<at::Tensor> trained_of(const ConvNet& net) {
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : net->parameters()) {
    if (parameter.requires_grad()) {
      trained.push_back(parameter);
    }
  }
  return trained;
}

torch::optim::SGD optimizer_of(const ConvNet& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
}

template <class Model>
torch::Tensor loss_of_part(Model& model, int step, int shard, int part) {
  return loss_of(model, make_sample(10 * step + part, shard, kBatch, torch::kFloat));
}

// Calls `make_step` for each step and thaws parameters in between.
void train(const ConvNet& net, const std::function<void(int step)>& make_step) {
  torch::optim::SGD optimizer = optimizer_of(net);
  for (int step = 0; step < kThawedSteps; ++step) {
    if (step == kThawed) {
      set_trained(net, true);
    }
    optimizer.zero_grad();
    make_step(step);
    optimizer.step();
  }
}

// Returns the parameters that one process computes with `n_parts` passes for each shard.
std::vector<at::Tensor> trained_by_one_process(int n_shards, int n_parts = 1) {
  std::vector<at::Tensor> result;
  run_ranks(1, [&](const Group&) {
    ConvNet net = make_frozen_net();
    train(net, [&](int step) {
      accumulate_shards(trained_of(net), n_shards, [&](int shard) {
        for (int part = 0; part < n_parts; ++part) {
          loss_of_part(net, step, shard, part).backward();
        }
      });
    });
    result = clone_all(net->parameters());
  });
  return result;
}

void expect_equal(const Net& model, const std::vector<at::Tensor>& expected) {
  EXPECT_TRUE(is_bit_equal(model.parameters(), expected));
  model.check_consistent();
}

TEST(Thaw, ComesToTheParametersOfOneProcess) {
  for (const int world_size : {2, 3}) {
    const std::vector<at::Tensor> expected = trained_by_one_process(world_size);
    for (const bool find_unused : {false, true}) {
      for (const bool has_hook : {false, true}) {
        run_ranks(world_size, [&](const Group& group) {
          DistributedDataParallelOptions options = small_buckets();
          options.find_unused_parameters = find_unused;
          Net model(make_frozen_net(), group, options);
          if (has_hook) {
            model.register_comm_hook(nullptr, allreduce_hook);
          }
          std::size_t n_buckets = 0;
          train(model.module(), [&](int step) {
            loss_of_part(model, step, group->rank(), 0).backward();
            if (step == kThawed - 1) {
              n_buckets = model.n_buckets();
            }
          });
          EXPECT_GT(model.n_buckets(), n_buckets);
          expect_equal(model, expected);
        });
      }
    }
  }
}

TEST(Thaw, UnderNoSyncWaitsForTheNextSynchronizedPass) {
  const std::vector<at::Tensor> expected = trained_by_one_process(2, 3);
  run_ranks(2, [&](const Group& group) {
    Net model(make_frozen_net(), group, small_buckets());
    train(model.module(), [&](int step) {
      {
        const NoSync guard = model.no_sync();
        loss_of_part(model, step, group->rank(), 0).backward();
        loss_of_part(model, step, group->rank(), 1).backward();
      }
      loss_of_part(model, step, group->rank(), 2).backward();
    });
    expect_equal(model, expected);
  });
}

TEST(Thaw, WithLogicalRanksComesToTheParametersOfOneProcess) {
  const std::vector<at::Tensor> expected = trained_by_one_process(5);
  for (const int world_size : {1, 2, 3, 5}) {
    run_ranks(world_size, [&](const Group& group) {
      DistributedDataParallelOptions options = small_buckets();
      options.logical_ranks = 5;
      Net model(make_frozen_net(), group, options);
      train(model.module(), [&](int step) {
        model.for_each_shard([&](int shard) { loss_of_part(model, step, shard, 0).backward(); });
      });
      expect_equal(model, expected);
    });
  }
}

// All ranks have the same number of samples, a power of two, so the weights are exact.
TEST(Thaw, WithWeightsComesToTheParametersOfOneProcess) {
  const std::vector<at::Tensor> expected = trained_by_one_process(2);
  run_ranks(2, [&](const Group& group) {
    DistributedDataParallelOptions options = small_buckets();
    options.weigh_samples = true;
    Net model(make_frozen_net(), group, options);
    train(model.module(), [&](int step) {
      model.run_step(kBatch, [&] { loss_of_part(model, step, group->rank(), 0).backward(); });
    });
    expect_equal(model, expected);
  });
}

TEST(Thaw, OfARankWithoutSamplesGetsTheOthersGradient) {
  on_two_frozen({.weigh_samples = true}, [](Model& model, double rank) {
    for (int step = 0; step < 3; ++step) {
      if (step == 1) {
        thaw(model, 1);
      }
      model.run_step(rank == 0 ? 2 : 0, [&] { model(Factors{1, 2, 3}).backward(); });
      const Gradients expected{1.0F, step == 0 ? std::nullopt : std::optional(2.0F), 3.0F};
      EXPECT_EQ(gradients_of(model), expected) << "step " << step;
    }
  });
}

TEST(Thaw, BetweenTwoForwardPassesCountsFromTheSecond) {
  on_two_frozen({.find_unused_parameters = true}, [](Model& model, double rank) {
    const torch::Tensor before = model(Factors{1 + rank, 2 + 2 * rank, 3});
    thaw(model, 1);
    const torch::Tensor after = model(Factors{1 + rank, 2 + 2 * rank, 3});
    before.backward();
    EXPECT_EQ(gradients_of(model), (Gradients{1.5F, std::nullopt, 3.0F}));
    after.backward();
    EXPECT_EQ(gradients_of(model), values({3, 3, 6}));
    model.zero_grad();
    model(Factors{1, 2 + 2 * rank, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({1, 3, 3})) << "buckets in the order of the first pass";
  });
}

TEST(Thaw, AndFreezeAgain) {
  on_two_frozen({.find_unused_parameters = true}, [](Model& model, double rank) {
    for (int step = 0; step < 6; ++step) {
      model.zero_grad();
      const bool is_trained = step % 3 != 0;
      model.module()->w[1].set_requires_grad(is_trained);
      model(Factors{1 + rank, 2 + 2 * rank, 3}).backward();
      const Gradients expected{1.5F, is_trained ? std::optional(3.0F) : std::nullopt, 3.0F};
      EXPECT_EQ(gradients_of(model), expected) << "step " << step;
    }
  });
}

TEST(Thaw, AfterAPassThatWasGivenUp) {
  on_two_frozen({}, [](Model& model, double rank) {
    const unsigned hook = model.module()->w[0].register_hook([rank](const torch::Tensor&) {
      if (rank == 1) {
        throw std::runtime_error("no gradient today");
      }
    });
    EXPECT_ANY_THROW(model(Factors{1, 2, 3}).backward());
    model.module()->w[0].remove_hook(hook);
    model.zero_grad();
    thaw(model, 1);
    model(Factors{1 + rank, 2 + 2 * rank, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({1.5F, 3, 3}));
  });
}

TEST(Thaw, FreesTheBucketsThatWereThereBefore) {
  on_two_frozen({}, [](Model& model, double /*rank*/) {
    model(Factors{1, 2, 3}).backward();
    model(Factors{1, 2, 3}).backward();  // Uses buckets in the final order.
    const auto memory_of = [](const at::Tensor& gradient) {
      return c10::weak_intrusive_ptr<c10::StorageImpl>(gradient.storage().getWeakStorageImpl());
    };
    const auto old = memory_of(model.module()->w[0].grad());
    model.zero_grad();
    EXPECT_FALSE(old.expired()) << "the bucket has it";
    thaw(model, 1);
    model(Factors{1, 2, 3}).backward();
    EXPECT_TRUE(old.expired());
    EXPECT_EQ(gradients_of(model), values({1, 2, 3}));
  });
}

TEST(Thaw, OfSparseGradientsAveragesThem) {
  run_ranks(2, [](const Group& group) {
    struct WordsImpl : torch::nn::Module {
      WordsImpl()
          : words(register_module(
                "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true)))),
            scale(register_parameter("scale", torch::ones({1}))) {
        words->weight.set_requires_grad(false);
      }

      torch::Tensor forward(const torch::Tensor& indices) { return (words(indices) * scale).sum(); }

      torch::nn::Embedding words;
      torch::Tensor scale;
    };

    DistributedDataParallel model(std::make_shared<WordsImpl>(), group);
    const torch::Tensor mine = torch::tensor({0, 1 + group->rank()});
    model(mine).backward();
    model.zero_grad();
    model.module()->words->weight.set_requires_grad(true);
    model(mine).backward();
    const torch::Tensor gradient = model.module()->words->weight.grad();
    EXPECT_TRUE(gradient.is_sparse());
    EXPECT_TRUE(gradient.to_dense().equal(torch::tensor({{1.0F}, {0.5F}, {0.5F}, {0.0F}})));
  });
}

TEST(Thaw, UnderJoinIsTakenInByRanksThatAreDone) {
  on_two_frozen({}, [](Model& model, double rank) {
    model.join([&] {
      for (int step = 0; step < 1 + 2 * rank; ++step) {
        model.zero_grad();
        model(Factors{1, 2, 3}).backward();
        const float share = step == 0 ? 1 : 0.5F;
        const Gradients expected{
            share, step == 0 ? std::nullopt : std::optional(2 * share), 3 * share};
        EXPECT_EQ(gradients_of(model), expected) << "step " << step;
        thaw(model, 1);  // On rank 0 this happens after its last batch.
      }
    });
    model.check_consistent();
  });
}

}  // namespace
}  // namespace unisono::testing
