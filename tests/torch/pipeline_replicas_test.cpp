// Data parallelism over pipelines.

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/nn/sync_batch_norm.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "canonical.h"
#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using nn::CheckpointMode;
using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;

constexpr std::int64_t kShard = 8;
constexpr int kSteps = 20;
constexpr double kRate = 0.3;

// Returns the shard of one replica in one step.
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

// Trains in one process that computes the same shards and chunks in the same order.
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

// Trains in one process, in float64, that treats the shards of both replicas as one batch.
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

// Returns the final values of this rank's parameters.
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

TEST(PipelineReplicas, HaveTheBitsOfOneProcessInEveryScheduleModeAndNumberOfChunks) {
  const torch::Tensor batch = make_batch(4 * kShard);
  const torch::Tensor targets = make_targets(4 * kShard);
  std::map<int, Named> expected;
  std::map<int, double> losses;
  for (const int chunks : {1, 2, 8}) {
    torch::nn::Sequential whole = make_chain();
    accumulate_shards(whole->parameters(), 2, [&](int shard) {
      losses[chunks] +=
          run_chunks(whole, shard_of(batch, shard, 0), shard_of(targets, shard, 0), chunks) / 2;
    });
    expected[chunks] = gradients_of(whole);
  }
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
    const int shard = mesh.coordinate("data");
    for (const std::string& schedule : all_schedules()) {
      for (const int chunks : {1, 2, 8}) {
        for (const auto mode : {CheckpointMode::kAlways, CheckpointMode::kExceptLast}) {
          Pipeline model(mesh.group("pipe"),
                         make_chain(),
                         PipelineOptions{.schedule = schedule,
                                         .chunks = chunks,
                                         .checkpoint = mode,
                                         .data_group = mesh.group("data")});
          const torch::Tensor loss = model.train_step(
              shard_of(batch, shard, 0), shard_of(targets, shard, 0), loss_of_classes);
          EXPECT_EQ(loss.item<double>(), losses.at(chunks)) << schedule << ", " << chunks;
          EXPECT_EQ(difference(gradients_of(model.named_parameters()), expected.at(chunks)), "")
              << schedule << ", " << chunks << " chunks, mode " << static_cast<int>(mode);
        }
      }
    }
  });
}

// Computes two steps in one process in which each shard adds its gradients to the whole result of
// the previous step.
Named gradients_of_two_steps(int n_chunks) {
  torch::nn::Sequential model = make_chain();
  const std::vector<torch::Tensor> parameters = model->parameters();
  const torch::Tensor batch = make_batch(4 * kShard);
  const torch::Tensor targets = make_targets(4 * kShard);
  for (int step = 0; step < 2; ++step) {
    const std::vector<torch::Tensor> before = clone_gradients(parameters);
    accumulate_shards(parameters, 2, [&](int shard) {
      const std::vector<torch::Tensor> copies = clone_all(before);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        parameters[i].mutable_grad() = copies[i];
      }
      (void)run_chunks(
          model, shard_of(batch, shard, step), shard_of(targets, shard, step), n_chunks);
    });
  }
  return gradients_of(model);
}

// Gradients that are already averaged are averaged again; all replicas have the same values.
TEST(PipelineReplicas, GradientsAddUpOverStepsAsThoseOfDistributedDataParallel) {
  constexpr int kTwoChunks = 2;
  const Named expected = gradients_of_two_steps(kTwoChunks);
  const torch::Tensor batch = make_batch(4 * kShard);
  const torch::Tensor targets = make_targets(4 * kShard);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& world) {
    const torch::nn::Sequential net = make_chain();
    DistributedDataParallel<torch::nn::Sequential> model(net, world);
    for (int step = 0; step < 2; ++step) {
      const auto backward = [&](int chunk) {
        const auto part = [&](const torch::Tensor& whole) {
          return shard_of(whole, world->rank(), step).chunk(kTwoChunks)[chunk];
        };
        (loss_of_classes(model.forward(part(batch)), part(targets)) / kTwoChunks).backward();
      };
      {
        const NoSync guard = model.no_sync();
        backward(0);
      }
      backward(1);
    }
    EXPECT_EQ(difference(gradients_of(net), expected), "");
  });
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
    const int shard = mesh.coordinate("data");
    for (const std::string& schedule : all_schedules()) {
      Pipeline model(
          mesh.group("pipe"),
          make_chain(),
          PipelineOptions{
              .schedule = schedule, .chunks = kTwoChunks, .data_group = mesh.group("data")});
      for (int step = 0; step < 2; ++step) {
        (void)model.train_step(
            shard_of(batch, shard, step), shard_of(targets, shard, step), loss_of_classes);
      }
      EXPECT_EQ(difference(gradients_of(model.named_parameters()), expected), "") << schedule;
    }
  });
}

TEST(PipelineReplicas, DropWhatOnePipelineOfAllTheirChunksDrops) {
  const torch::Tensor batch = make_batch(2 * kShard, torch::kFloat64);
  const torch::Tensor targets = make_targets(2 * kShard);
  const auto make = [] { return make_chain(torch::kFloat64, 0.4); };
  for (const int chunks : {1, 2, 8}) {
    Named expected;
    run_ranks(1, [&](const std::shared_ptr<ProcessGroup>& alone) {
      Pipeline model(alone, make(), PipelineOptions{.chunks = 2 * chunks});
      (void)model.train_step(batch, targets, loss_of_classes);
      expected = gradients_of(model.named_parameters());
    });
    run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
      const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
      const int shard = mesh.coordinate("data");
      for (const std::string& schedule : all_schedules()) {
        for (const auto mode :
             {CheckpointMode::kNever, CheckpointMode::kAlways, CheckpointMode::kExceptLast}) {
          Pipeline model(mesh.group("pipe"),
                         make(),
                         PipelineOptions{.schedule = schedule,
                                         .chunks = chunks,
                                         .checkpoint = mode,
                                         .data_group = mesh.group("data")});
          (void)model.train_step(batch.chunk(2)[shard], targets.chunk(2)[shard], loss_of_classes);
          const Named gradients = gradients_of(model.named_parameters());
          // With more chunks the order of additions differs.
          EXPECT_LE(relative_difference(gradients, expected), chunks == 1 ? 0 : 1e-12)
              << schedule << ", " << chunks << " chunks, mode " << static_cast<int>(mode);
        }
      }
    });
  }
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

torch::nn::Sequential make_normalized(const std::shared_ptr<ProcessGroup>& group) {
  // The layer has no bias because the gradient of a bias would consist of rounding errors.
  torch::nn::Sequential model(torch::nn::Linear(torch::nn::LinearOptions(6, 8).bias(false)),
                              nn::SyncBatchNorm(torch::nn::BatchNormOptions(8), group),
                              torch::nn::Tanh(),
                              torch::nn::Linear(8, 3));
  fill(*model);
  model->to(torch::kFloat64);
  return model;
}

// Returns this rank's gradients and its buffers, whose names begin with "mean of ".
Named train_normalized(const std::shared_ptr<ProcessGroup>& world, PipelineOptions options) {
  const torch::Tensor batch = make_batch(2 * kShard, torch::kFloat64);
  const torch::Tensor targets = make_targets(2 * kShard);
  const Mesh mesh(world, {{"data", 2}, {"pipe", world->world_size() / 2}});
  options.data_group = mesh.group("data");
  Pipeline model(mesh.group("pipe"), make_normalized(mesh.group("data")), options);
  const int shard = mesh.coordinate("data");
  (void)model.train_step(batch.chunk(2)[shard], targets.chunk(2)[shard], loss_of_classes);
  Named all = gradients_of(model.named_parameters());
  for (const NamedTensor& buffer : model.named_buffers()) {
    all["mean of " + buffer.name] = buffer.tensor.to(torch::kFloat64);
  }
  return all;
}

TEST(PipelineReplicas, NormalizationIsOverTheBatchesOfAllReplicas) {
  // With one chunk the statistics are equal to the statistics of the whole batch.
  torch::nn::Sequential whole = make_normalized(nullptr);
  (void)run_chunks(whole, make_batch(2 * kShard, torch::kFloat64), make_targets(2 * kShard), 1);
  Named expected = gradients_of(whole);
  for (const auto& buffer : whole->named_buffers()) {
    expected["mean of " + buffer.key()] = buffer.value().to(torch::kFloat64);
  }
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    for (const auto* const schedule : {"1f1b", "v_half"}) {
      EXPECT_LT(relative_difference(train_normalized(world, {.schedule = schedule}), expected),
                1e-9)
          << schedule;
    }
  });
}

TEST(PipelineReplicas, NormalizationOfChunksIsThatOfReplicasOfOneRank) {
  Named expected;
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& world) {
    const Named own = train_normalized(world, {.schedule = "fill_drain", .chunks = 2});
    if (world->rank() == 0) {
      expected = own;
    }
  });
  run_ranks(4, [&](const std::shared_ptr<ProcessGroup>& world) {
    for (const std::string& schedule : all_schedules()) {
      for (const auto mode :
           {CheckpointMode::kNever, CheckpointMode::kAlways, CheckpointMode::kExceptLast}) {
        const PipelineOptions options{.schedule = schedule, .chunks = 2, .checkpoint = mode};
        EXPECT_EQ(difference(train_normalized(world, options), expected), "")
            << schedule << ", mode " << static_cast<int>(mode);
      }
    }
  });
}

}  // namespace
}  // namespace unisono::testing
