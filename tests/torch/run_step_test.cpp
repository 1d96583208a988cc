// Steps of ranks with different numbers of samples and batches.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/sgd.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using Group = std::shared_ptr<ProcessGroup>;
using Sizes = std::vector<std::int64_t>;  // Sizes of a rank's batches.

// Batch sizes by rank. Rank 0 finishes first. In the third step rank 1 has no samples but
// continues.
const std::array<Sizes, 3> kSizes{{{3, 5}, {7, 1, 0, 4}, {2, 6, 5, 3}}};
constexpr int kSteps = 4;

std::int64_t size_of_batch(int rank, int step) {
  const Sizes& sizes = kSizes[static_cast<std::size_t>(rank)];
  return static_cast<std::size_t>(step) < sizes.size() ? sizes[static_cast<std::size_t>(step)] : 0;
}

Sample batch_of(int rank, int step, torch::Dtype dtype) {
  return make_sample(step, rank, size_of_batch(rank, step), dtype);
}

torch::optim::SGD optimizer_of(const std::vector<at::Tensor>& parameters) {
  return torch::optim::SGD(parameters, torch::optim::SGDOptions(0.05).momentum(0.9));
}

// The training loop, which is equal on all ranks. Returns the number of steps.
int train(DistributedDataParallel<ConvNet>& model, int rank, torch::Dtype dtype) {
  torch::optim::SGD optimizer = optimizer_of(model.parameters());
  int step = 0;
  while (model.run_step(size_of_batch(rank, step),
                        [&] { loss_of(model, batch_of(rank, step, dtype)).backward(); })) {
    optimizer.step();
    ++step;
  }
  return step;
}

// Trains in one process that adds the gradients of the ranks, weighted by their samples, in the
// canonical order.
std::vector<at::Tensor> train_alone() {
  ConvNet model = make_seeded_net();
  const std::vector<at::Tensor> parameters = model->parameters();
  torch::optim::SGD optimizer = optimizer_of(parameters);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<std::vector<at::Tensor>> sums(parameters.size());
    std::int64_t n_samples = 0;
    for (int rank = 0; rank < 3; ++rank) {
      optimizer.zero_grad();
      const std::int64_t size = size_of_batch(rank, step);
      if (size > 0) {
        loss_of(model, batch_of(rank, step, torch::kFloat)).backward();
      }
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        const at::Tensor& gradient = parameters[i].grad();
        sums[i].push_back(size > 0 ? gradient * size : torch::zeros_like(parameters[i]).detach());
      }
      n_samples += size;
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = canonical_sum(sums[i]).div(n_samples);
    }
    optimizer.step();
  }
  return parameters;
}

TEST(RunStep, HasTheBitsOfOneProcessWhateverTheBucketsAre) {
  std::vector<at::Tensor> expected;
  // Runs on one compute thread, as ranks do.
  run_ranks(1, [&](const Group&) { expected = train_alone(); });
  for (const double cap_mb : {1e-6, 1e-3, 25.0}) {
    for (const bool find_unused : {false, true}) {
      run_ranks(3, [&](const Group& group) {
        DistributedDataParallel model(make_seeded_net(),
                                      group,
                                      {.bucket_cap_mb = cap_mb,
                                       .first_bucket_cap_mb = cap_mb,
                                       .find_unused_parameters = find_unused,
                                       .weigh_samples = true,
                                       .parameter_drift = ParameterDrift::kThrow});
        EXPECT_EQ(train(model, group->rank(), torch::kFloat), kSteps);
        EXPECT_TRUE(is_bit_equal(model.parameters(), expected)) << cap_mb << " " << find_unused;
      });
    }
  }
}

TEST(RunStep, IsAStepOnTheJoinedBatch) {
  ConvNet alone = make_seeded_net();
  alone->to(torch::kDouble);
  torch::optim::SGD optimizer = optimizer_of(alone->parameters());
  for (int step = 0; step < kSteps; ++step) {
    std::vector<Sample> samples;
    for (int rank = 0; rank < 3; ++rank) {
      samples.push_back(batch_of(rank, step, torch::kDouble));
    }
    optimizer.zero_grad();
    loss_of(alone, join(samples)).backward();
    optimizer.step();
  }
  run_ranks(3, [&](const Group& group) {
    ConvNet net = make_seeded_net();
    net->to(torch::kDouble);
    DistributedDataParallel model(net, group, {.weigh_samples = true});
    train(model, group->rank(), torch::kDouble);
    for (std::size_t i = 0; i < model.parameters().size(); ++i) {
      const at::Tensor expected = alone->parameters()[i].detach();
      const double difference =
          (model.parameters()[i].detach() - expected).abs().max().item<double>();
      EXPECT_LE(difference, 1e-12 * expected.abs().max().item<double>()) << "parameter " << i;
    }
  });
}

TEST(RunStep, WeighsTheSumOfPassesThatAreNotSynchronized) {
  on_two_ranks({.weigh_samples = true}, [](Model& model, double rank) {
    const std::int64_t n_samples = rank == 0 ? 1 : 3;
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(model.run_step(n_samples, [&] {
        {
          const auto guard = model.no_sync();
          model(Factors{rank + 1, 4, 8}).backward();
        }
        model(Factors{rank + 1, 4, rank + 1}).backward();
      }));
      EXPECT_EQ(gradients_of(model), values({3.5, 8, 9.75}));
    }
    EXPECT_FALSE(model.run_step(0, [] {}));
    EXPECT_EQ(gradients_of(model)[0], std::nullopt);
    EXPECT_FALSE(model.run_step(0, [] {})) << "again";
    EXPECT_TRUE(model.run_step(2, [&] { model(Factors{rank + 1, 1, 1}).backward(); }))
        << "an epoch";
    EXPECT_EQ(gradients_of(model), values({1.5, 1, 1}));
  });
}

struct NormImpl : torch::nn::Module {
  NormImpl() : norm(register_module("norm", torch::nn::BatchNorm1d(2))) {}

  torch::Tensor forward(const torch::Tensor& x) { return norm(x); }

  torch::nn::BatchNorm1d norm{nullptr};
};

TORCH_MODULE(Norm);

// Rank 0, from which the others usually receive buffers, has no samples. Rank 1 has no samples in
// the last step.
TEST(RunStep, BuffersAreThoseOfARankThatHadSamples) {
  run_ranks(3, [](const Group& group) {
    DistributedDataParallel<Norm> model(Norm(), group, {.weigh_samples = true});
    const int n_batches = group->rank() == 0 ? 0 : 4 - group->rank();
    const at::Tensor x = torch::full({4, 2}, 10.0) + torch::arange(8).view({4, 2});
    int step = 0;
    while (model.run_step(step < n_batches ? 4 : 0, [&] { model(x).sum().backward(); })) {
      ++step;
    }
    EXPECT_EQ(step, 3);
    EXPECT_EQ(model.module()->norm->num_batches_tracked.item<std::int64_t>(), 3);
    const torch::NoGradGuard no_grad;
    model.eval();
    EXPECT_TRUE(is_bit_equal({model(x)}, {model.module()->forward(x)}));
  });
}

// The ranks without samples do not take part in these passes.
TEST(RunStep, ForwardPassesOfAnyNumberAndKindAreTheRanksOwn) {
  run_ranks(2, [](const Group& group) {
    DistributedDataParallel<Norm> model(Norm(), group, {.weigh_samples = true});
    const at::Tensor x = torch::arange(8.0).view({4, 2});
    for (int step = 0; step < 4; ++step) {
      model.train(step == 0);
      EXPECT_TRUE(model.run_step(group->rank(), [&] {
        {
          const torch::NoGradGuard no_grad;
          (void)model(x);
        }
        (void)model(x);
        model(x).sum().backward();
      }));
    }
    EXPECT_EQ(model.module()->norm->num_batches_tracked.item<std::int64_t>(), 3);
  });
}

struct LookUpImpl : torch::nn::Module {
  LookUpImpl()
      : table(register_module(
            "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(4, 1).sparse(true)))),
        scale(register_parameter("scale", torch::ones(1))) {
    const torch::NoGradGuard no_grad;
    table->weight.fill_(1);
  }

  torch::Tensor forward(const torch::Tensor& rows) { return table(rows) * scale; }

  torch::nn::Embedding table{nullptr};
  torch::Tensor scale;
};

TORCH_MODULE(LookUp);

TEST(RunStep, WeighsSparseGradients) {
  run_ranks(3, [](const Group& group) {
    DistributedDataParallel<LookUp> model(LookUp(), group, {.weigh_samples = true});
    const int rank = group->rank();
    const at::Tensor rows = rank == 0 ? torch::tensor({1, 1, 2}) : torch::tensor({2});
    const std::int64_t n_samples = rank == 2 ? 0 : rows.numel();
    ASSERT_TRUE(model.run_step(n_samples, [&] { model(rows).mean().backward(); }));
    const at::Tensor gradient = model.module()->table->weight.grad().to_dense().view({-1});
    EXPECT_TRUE(torch::equal(gradient, torch::tensor({0.F, 0.5F, 0.5F, 0.F}))) << gradient;
  });
}

}  // namespace
}  // namespace unisono::testing
