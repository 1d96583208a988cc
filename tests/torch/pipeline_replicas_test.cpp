// Data parallelism over pipelines, and checkpoints in parts.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/nn/sync_batch_norm.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "canonical.h"
#include "pipelines.h"
#include "rank_threads.h"
#include "support/temporary_folder.h"

namespace unisono::testing {
namespace {

using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;

constexpr std::int64_t kShard = 8;
constexpr int kSteps = 20;
constexpr double kRate = 0.3;

// Of one replica in one step.
torch::Tensor shard_of(const torch::Tensor& batch, int shard, int step) {
  return batch.narrow(0, kShard * ((shard + step) % 4), kShard);
}

Named values_of(const std::vector<NamedTensor>& parameters) {
  Named values;
  for (const NamedTensor& parameter : parameters) {
    values[parameter.name] = parameter.tensor.detach();
  }
  return values;
}

Named values_of(const torch::nn::Sequential& model) {
  Named values;
  for (const auto& parameter : model->named_parameters()) {
    values[parameter.key()] = parameter.value().detach();
  }
  return values;
}

// One process that computes the same shards and chunks in the same order.
Named train_alone(int n_shards, int n_chunks) {
  torch::nn::Sequential model = make_chain();
  torch::optim::SGD optimizer(model->parameters(), kRate);
  const torch::Tensor batch = make_batch(4 * kShard);
  const torch::Tensor targets = make_targets(4 * kShard);
  for (int step = 0; step < kSteps; ++step) {
    accumulate_shards(model->parameters(), n_shards, [&](int shard) {
      (void)run_chunks(
          model, shard_of(batch, shard, step), shard_of(targets, shard, step), n_chunks);
    });
    optimizer.step();
  }
  return values_of(model);
}

// One process that takes both replicas' shards as one batch, in float64.
Named train_on_whole_batches() {
  torch::nn::Sequential model = make_chain(torch::kFloat64);
  torch::optim::SGD optimizer(model->parameters(), kRate);
  const torch::Tensor batch = make_batch(4 * kShard, torch::kFloat64);
  const torch::Tensor targets = make_targets(4 * kShard);
  const auto whole = [](const torch::Tensor& of_all, int step) {
    return torch::cat({shard_of(of_all, 0, step), shard_of(of_all, 1, step)});
  };
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    (void)run_chunks(model, whole(batch, step), whole(targets, step), 1);
    optimizer.step();
  }
  return values_of(model);
}

// The values of this rank's parameters in the end.
Named train_hybrid(const std::shared_ptr<ProcessGroup>& world,
                   int n_replicas,
                   const std::string& schedule,
                   torch::Dtype dtype = torch::kFloat32) {
  const Mesh mesh(world, {{"data", n_replicas}, {"pipe", world->world_size() / n_replicas}});
  Pipeline model(
      mesh.group("pipe"),
      make_chain(dtype),
      PipelineOptions{.schedule = schedule, .chunks = 4, .data_group = mesh.group("data")});
  torch::optim::SGD optimizer(model.parameters(), kRate);
  const torch::Tensor batch = make_batch(4 * kShard, dtype);
  const torch::Tensor targets = make_targets(4 * kShard);
  const int shard = mesh.coordinate("data");
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    (void)model.train_step(
        shard_of(batch, shard, step), shard_of(targets, shard, step), loss_of_classes);
    optimizer.step();
  }
  return values_of(model.named_parameters());
}

TEST(PipelineReplicas, TrainToTheBitsOfOneProcess) {
  const Named of_two = train_alone(2, 4);
  const Named of_three = train_alone(3, 4);
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    for (const std::string& schedule : all_schedules()) {
      EXPECT_EQ(difference(train_hybrid(world, 2, schedule), of_two), "") << schedule;
    }
  });
  run_ranks(3, [&](const std::shared_ptr<ProcessGroup>& world) {
    for (const auto* const schedule : {"1f1b", "zb_h1"}) {
      EXPECT_EQ(difference(train_hybrid(world, 3, schedule), of_three), "") << schedule;
    }
  });
}

TEST(PipelineReplicas, TrainAsOneProcessOnWholeBatchesInDoublePrecision) {
  const Named expected = train_on_whole_batches();
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    for (const auto* const schedule : {"1f1b", "zb_h1", "v_half"}) {
      EXPECT_LT(relative_difference(train_hybrid(world, 2, schedule, torch::kFloat64), expected),
                1e-9)
          << schedule;
    }
  });
}

TEST(PipelineReplicas, HaveTheGradientsOfTheWholeBatchInDoublePrecision) {
  const torch::Tensor batch = make_batch(2 * kShard, torch::kFloat64);
  const torch::Tensor targets = make_targets(2 * kShard);
  torch::nn::Sequential whole = make_chain(torch::kFloat64);
  const double loss = run_chunks(whole, batch, targets, 1);
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
    Pipeline model(
        mesh.group("pipe"),
        make_chain(torch::kFloat64),
        PipelineOptions{.schedule = "zb_h1", .chunks = 4, .data_group = mesh.group("data")});
    const int shard = mesh.coordinate("data");
    const torch::Tensor mean =
        model.train_step(batch.chunk(2)[shard], targets.chunk(2)[shard], loss_of_classes);
    EXPECT_NEAR(mean.item<double>(), loss, 1e-12);
    EXPECT_LT(relative_difference(gradients_of(model.named_parameters()), gradients_of(whole)),
              1e-9);
  });
}

TEST(PipelineReplicas, StartWithTheValuesOfTheFirst) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& world) {
    torch::nn::Sequential own = make_chain();
    if (world->rank() == 1) {
      const torch::NoGradGuard no_grad;
      (*own)[0]->parameters()[0].fill_(9);
    }
    const Mesh mesh(world, {{"data", 2}, {"pipe", 1}});
    const Pipeline model(
        mesh.group("pipe"), own, PipelineOptions{.data_group = mesh.group("data")});
    EXPECT_EQ(difference(values_of(model.named_parameters()), values_of(make_chain())), "");
  });
}

TEST(PipelineReplicas, NormalizationIsOverTheBatchesOfAllReplicas) {
  const auto make = [](const std::shared_ptr<ProcessGroup>& group) {
    // Without a bias, whose gradient would be rounding alone.
    torch::nn::Sequential model(torch::nn::Linear(torch::nn::LinearOptions(6, 8).bias(false)),
                                nn::SyncBatchNorm(torch::nn::BatchNormOptions(8), group),
                                torch::nn::Tanh(),
                                torch::nn::Linear(8, 3));
    fill(*model);
    model->to(torch::kFloat64);
    return model;
  };
  // With one chunk the statistics are those of the whole batch.
  const torch::Tensor batch = make_batch(2 * kShard, torch::kFloat64);
  const torch::Tensor targets = make_targets(2 * kShard);
  torch::nn::Sequential whole = make(nullptr);
  (void)run_chunks(whole, batch, targets, 1);
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
    for (const auto* const schedule : {"1f1b", "v_half"}) {
      Pipeline model(mesh.group("pipe"),
                     make(mesh.group("data")),
                     PipelineOptions{.schedule = schedule, .data_group = mesh.group("data")});
      const int shard = mesh.coordinate("data");
      (void)model.train_step(batch.chunk(2)[shard], targets.chunk(2)[shard], loss_of_classes);
      EXPECT_LT(relative_difference(gradients_of(model.named_parameters()), gradients_of(whole)),
                1e-9)
          << schedule;
    }
  });
}

TEST(PipelineCheckpoint, OfTwoPartsIsReadInOneAndInFour) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/model";
  torch::Tensor expected;
  std::mutex mutex;
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(), PipelineOptions{.chunks = 2, .gathers_outputs = true});
    torch::optim::SGD optimizer(model.parameters(), kRate);
    (void)model.train_step(make_batch(kShard), make_targets(kShard), loss_of_classes);
    optimizer.step();
    const StateParts parts = parts_to_save(*group, {}, model.state());
    checkpoint::save_checkpoint(*group, path, 1, parts.parts, {}, parts.common);
    model.eval();
    const torch::Tensor output = model.forward(make_batch(kShard));
    const std::lock_guard lock(mutex);
    expected = output;
  });
  for (const int n_parts : {1, 4}) {
    run_ranks(n_parts, [&](const std::shared_ptr<ProcessGroup>& group) {
      Pipeline model(group, make_chain(), PipelineOptions{.chunks = 2, .gathers_outputs = true});
      model.load_state(load_state(*group, path));
      model.eval();
      EXPECT_TRUE(torch::equal(model.forward(make_batch(kShard)), expected)) << n_parts;
    });
  }
}

TEST(PipelineCheckpoint, AStateThatLacksSomethingChangesNothing) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(), {});
    TensorState state = model.state();
    state["0.weight"] = torch::zeros({8, 6});
    state.erase("11.bias");
    EXPECT_THROW(model.load_state(state), Error);
    state["11.bias"] = torch::zeros({4});
    EXPECT_THROW(model.load_state(state), Error);
    EXPECT_EQ(difference(values_of(model.named_parameters()), values_of(make_chain())), "");
    state["11.bias"] = torch::zeros({3});
    model.load_state(state);
    EXPECT_EQ(model.parameters()[0].abs().sum().item<double>(), 0);
  });
}

}  // namespace
}  // namespace unisono::testing
