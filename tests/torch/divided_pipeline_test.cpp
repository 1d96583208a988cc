// Compares pipelines of divided layers with one rank that has the whole model. Ranks are threads:
// two for each of two stages.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/utils.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/nn/sync_batch_norm.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/functions.h"
#include "unisono/torch/parallel/tensor/layers.h"
#include "unisono/torch/tensor/random_state.h"

#include "divided_models.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::ClipOptions;
using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using Group = std::shared_ptr<ProcessGroup>;

constexpr int kBatch = 4;
constexpr int kFeatures = 12;
constexpr double kDropout = 0.3;
constexpr double kLargestNorm = 0.05;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// A layer that draws random numbers after each synchronization of its ranks.
struct DroppingImpl : torch::nn::Module {
  explicit DroppingImpl(const Group& group) {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
    column = register_module("column",
                             parallel::ColumnParallelLinear(
                                 parallel::ColumnParallelLinearOptions{.in_features = kModelSize,
                                                                       .out_features = kFeatures},
                                 group,
                                 generator));
    row = register_module(
        "row",
        parallel::RowParallelLinear(
            parallel::RowParallelLinearOptions{
                .in_features = kFeatures, .out_features = kModelSize, .input_is_split = false},
            group,
            generator));
    to(torch::kDouble);
  }

  at::Tensor forward(const at::Tensor& input) {
    const auto drop = [](const at::Tensor& tensor) {
      return at::dropout(tensor, kDropout, /*train=*/true);
    };
    return input + drop(row(drop(torch::tanh(column(input)))));
  }

  parallel::ColumnParallelLinear column{nullptr};
  parallel::RowParallelLinear row{nullptr};
};

TORCH_MODULE(Dropping);

// Returns two stages. A pipeline splits a batch along the first dimension, which is the sequence in
// these layers.
std::vector<torch::nn::Sequential> make_layers(const Group& tensor, bool drops) {
  const DividedTransformer model =
      make_divided(tensor, /*sequence_parallel=*/false, drops ? kDropout : 0);
  torch::nn::Sequential second;
  if (drops) {
    second->push_back(Dropping(tensor));
  }
  second->push_back(model->second);
  if (drops) {
    // This layer follows a layer with a common seed of its ranks.
    second->push_back(Dropping(tensor));
  }
  second->push_back(model->head);
  return {torch::nn::Sequential(model->embedding, model->first), second};
}

Stage make_stage(torch::nn::Sequential layers, int stage) {
  return {.module = layers.ptr(), .forward = [layers, stage](const Tensors& inputs) mutable {
            return Tensors{layers->forward(stage == 0 ? inputs[0].t() : inputs[0])};
          }};
}

double train_step(Pipeline& pipeline, const Group& tensor, int step) {
  const Text text = make_text(step, kBatch);
  return pipeline
      .train_step(text.ids.t().contiguous(),
                  text.targets.t().contiguous(),
                  [&](const at::Tensor& output, const at::Tensor& target) {
                    return parallel::vocab_parallel_cross_entropy(output, target.t(), tensor);
                  })
      .item<double>();
}

PipelineOptions options_of(const Group& pipe) {
  return {.schedule = pipe->world_size() == 1 ? "interleaved_1f1b" : "1f1b",
          .chunks = 2,
          .stages_per_rank = 2};
}

// Losses of all steps, and the whole gradients of the own stages, summed over the steps.
struct Trained {
  std::vector<double> losses;
  std::vector<TensorState> gradients = std::vector<TensorState>(2);
};

Trained train(const Group& tensor, const Group& pipe, nn::CheckpointMode checkpoint) {
  const std::vector<torch::nn::Sequential> layers = make_layers(tensor, /*drops=*/true);
  PipelineOptions options = options_of(pipe);
  options.checkpoint = checkpoint;
  Pipeline pipeline(
      pipe,
      [&](int stage) { return make_stage(layers[static_cast<std::size_t>(stage)], stage); },
      options);
  Trained trained;
  for (int step = 0; step < 3; ++step) {
    trained.losses.push_back(train_step(pipeline, tensor, step));
  }
  for (const int stage : pipeline.stages()) {
    const auto place = static_cast<std::size_t>(stage);
    trained.gradients[place] = gather_gradients(*layers[place]);
  }
  return trained;
}

TEST(DividedPipeline, InThreadsDropsWhatOneRankDrops) {
  for (const auto checkpoint : {nn::CheckpointMode::kNever, nn::CheckpointMode::kAlways}) {
    Trained expected;
    run_ranks(1, [&](const Group& alone) { expected = train(alone, alone, checkpoint); });
    run_ranks(4, [&](const Group& world) {
      const Mesh mesh(world, {{"pipe", 2}, {"tensor", 2}});
      const Trained trained = train(mesh.group("tensor"), mesh.group("pipe"), checkpoint);
      const auto stage = static_cast<std::size_t>(mesh.coordinate("pipe"));
      for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        EXPECT_NEAR(trained.losses[step], expected.losses[step], 1e-9) << "step " << step;
      }
      expect_close(trained.gradients[stage], expected.gradients[stage]);
    });
  }
}

TEST(RandomTurn, InsideAnotherOneChangesNothing) {
  const RandomTurn outer;
  seed_random(5);
  const at::Tensor expected = torch::rand({3});
  seed_random(5);
  {
    const RandomTurn inner;
  }
  EXPECT_TRUE(RandomTurn::is_own());
  EXPECT_TRUE(at::equal(torch::rand({3}), expected));
}

// A pipeline of two stages with gradients, some of which tests may change.
struct Ready {
  explicit Ready(const Group& world)
      : mesh(world, {{"pipe", 2}, {"tensor", 2}}),
        layers(make_layers(mesh.group("tensor"), /*drops=*/false)),
        pipeline(
            mesh.group("pipe"),
            [this](int number) {
              return make_stage(layers[static_cast<std::size_t>(number)], number);
            },
            options_of(mesh.group("pipe"))) {
    (void)train_step(pipeline, mesh.group("tensor"), 0);
  }

  [[nodiscard]] torch::nn::Sequential own() const {
    return layers[static_cast<std::size_t>(mesh.coordinate("pipe"))];
  }

  Mesh mesh;
  std::vector<torch::nn::Sequential> layers;
  Pipeline pipeline;
};

// The whole model in the same state, with access to the part of each stage.
struct Whole {
  Whole() { model->loss(make_text(0, kBatch)).backward(); }

  [[nodiscard]] TensorState gradients(int stage) const {
    return gradients_of(*(stage == 0 ? torch::nn::Sequential(model->embedding, model->first)
                                     : torch::nn::Sequential(model->second, model->head)));
  }

  WholeTransformer model = make_whole();
};

TEST(DividedPipeline, ClipsAsOneProcess) {
  for (const double norm_type : {2.0, 3.0, kInfinity}) {
    const Whole whole;
    const double norm =
        torch::nn::utils::clip_grad_norm_(whole.model->parameters(), kLargestNorm, norm_type);
    run_ranks(4, [&](const Group& world) {
      Ready ready(world);
      EXPECT_NEAR(
          ready.pipeline.clip_grad_norm(kLargestNorm, {.norm_type = norm_type}), norm, 1e-9 * norm);
      expect_close(gather_gradients(*ready.own()), whole.gradients(ready.mesh.coordinate("pipe")));
    });
  }
}

// Changes one element in a part that only one of the four ranks has.
void poison(const torch::nn::Module& module, double value) {
  const torch::NoGradGuard no_grad;
  module.named_parameters()["1.linear1.weight"].mutable_grad()[0][0].fill_(value);
}

class NotFinite : public ::testing::TestWithParam<std::tuple<double, double>> {};

TEST_P(NotFinite, IsSoInAllGradientsAsInTorch) {
  const auto [value, norm_type] = GetParam();
  const Whole whole;
  const torch::nn::Sequential first(whole.model->embedding, whole.model->first);
  poison(*first, value);
  (void)torch::nn::utils::clip_grad_norm_(whole.model->parameters(), kLargestNorm, norm_type);
  run_ranks(4, [&, value = value, norm_type = norm_type](const Group& world) {
    Ready ready(world);
    if (world->rank() == 0) {
      poison(*ready.own(), value);
    }
    const double norm = ready.pipeline.clip_grad_norm(kLargestNorm, {.norm_type = norm_type});
    EXPECT_TRUE(std::isnan(value) ? std::isnan(norm) : std::isinf(norm)) << norm;
    const TensorState expected = whole.gradients(ready.mesh.coordinate("pipe"));
    for (const auto& [name, gradient] : gather_gradients(*ready.own())) {
      EXPECT_TRUE(at::allclose(gradient, expected.at(name), 1e-9, 1e-12, /*equal_nan=*/true))
          << name;
    }
  });
}

// A maximum must also preserve a NaN in any position.
INSTANTIATE_TEST_SUITE_P(ValuesAndNorms,
                         NotFinite,
                         ::testing::Combine(::testing::Values(kNaN, kInfinity),
                                            ::testing::Values(2.0, kInfinity)));

TEST(DividedPipeline, WhatIsNotFiniteMayBeAnErrorOnEveryRankAndAllGoOn) {
  const Whole whole;
  run_ranks(4, [&](const Group& world) {
    Ready ready(world);
    if (world->rank() == 0) {
      poison(*ready.own(), kNaN);
    }
    const ClipOptions options{.error_if_nonfinite = true};
    const auto message = [](const auto& clip) -> std::string {
      try {
        (void)clip();
      } catch (const Error& error) {
        return error.code() == ErrorCode::kInvalidArgument ? error.what() : "another code";
      }
      return "no error";
    };
    const std::string expected = "clip_grad_norm: the norm of the gradients is nan";
    EXPECT_THAT(message([&] { return ready.pipeline.clip_grad_norm(kLargestNorm, options); }),
                HasSubstr(expected));
    EXPECT_THAT(message([&] {
                  return parallel::clip_grad_norm(
                      *ready.own(),
                      kLargestNorm,
                      {.error_if_nonfinite = true, .others = ready.mesh.group("pipe")});
                }),
                HasSubstr(expected));
    if (world->rank() == 0) {
      poison(*ready.own(), 0);
    }
    // The failed call has not scaled the gradients, and the next call works as the first.
    EXPECT_GT(ready.pipeline.clip_grad_norm(1e9, options), kLargestNorm);
    if (ready.mesh.coordinate("pipe") == 1) {
      expect_close(gather_gradients(*ready.own()), whole.gradients(1));
    }
  });
}

// Returns the error of each rank; "" after success. The groups stay open until all ranks have
// failed, as in processes that continue.
std::vector<std::string> errors_of(
    const std::vector<parallel::MeshDimension>& dimensions,
    const std::function<void(const Mesh&, const Group& world)>& body) {
  int n_ranks = 1;
  for (const parallel::MeshDimension& dimension : dimensions) {
    n_ranks *= dimension.size;
  }
  std::vector<std::string> errors(static_cast<std::size_t>(n_ranks));
  std::vector<std::optional<Mesh>> meshes(errors.size());
  run_ranks(n_ranks, [&](const Group& world) {
    const auto rank = static_cast<std::size_t>(world->rank());
    meshes[rank].emplace(world, dimensions);
    try {
      body(*meshes[rank], world);
    } catch (const Error& error) {
      errors[rank] = error.what();
    }
  });
  return errors;
}

// Throws in its second chunk if `fails` is set on this rank.
Stage failing_stage(torch::nn::Sequential layers, bool fails) {
  return {.module = layers.ptr(),
          .forward = [layers, fails, n_calls = 0](const Tensors& inputs) mutable {
            if (n_calls++ == 1 && fails) {
              throw std::runtime_error("the milk is sour");
            }
            return Tensors{layers->forward(inputs.at(0))};
          }};
}

TEST(DividedPipeline, AStageThatThrowsOnOneTensorRankIsNamedOnAll) {
  for (const auto* const schedule : {"1f1b", "zb_h1"}) {
    EXPECT_THAT(
        errors_of({{"data", 2}, {"pipe", 2}, {"tensor", 2}},
                  [&](const Mesh& mesh, const Group& world) {
                    torch::nn::Sequential layers(Dropping(mesh.group("tensor")));
                    Pipeline pipeline(
                        mesh.group("pipe"),
                        [&](int) { return failing_stage(layers, world->rank() == 1); },
                        {.schedule = schedule, .chunks = 4, .data_group = mesh.group("data")});
                    (void)pipeline.train_step(wave({8, kModelSize}),
                                              wave({8, kModelSize}),
                                              [](const at::Tensor& output, const at::Tensor& to) {
                                                return torch::mse_loss(output, to);
                                              });
                  }),
        Each(
            AllOf(HasSubstr("[rank 0/2] Pipeline: forward of chunk 1 in stage 0: the milk is sour"),
                  HasSubstr("in replica 0"),
                  Not(HasSubstr("in replica 1")))))
        << schedule;
  }
}

TEST(DividedPipeline, AStageThatThrowsIsNamedWhereItsNormalizationIsWaitedFor) {
  std::vector<Group> norm_groups(4);
  EXPECT_THAT(
      errors_of({{"data", 2}, {"pipe", 2}},
                [&](const Mesh& mesh, const Group& world) {
                  Group& group = norm_groups[static_cast<std::size_t>(world->rank())];
                  group = world->split(mesh.coordinate("pipe"), world->rank());
                  torch::nn::Sequential layers(
                      torch::nn::Linear(6, 6),
                      nn::SyncBatchNorm(torch::nn::BatchNormOptions(6), group));
                  Pipeline pipeline(mesh.group("pipe"),
                                    [&](int) { return failing_stage(layers, world->rank() == 3); },
                                    {.chunks = 4, .data_group = mesh.group("data")});
                  (void)pipeline.train_step(torch::ones({8, 6}),
                                            torch::ones({8, 6}),
                                            [](const at::Tensor& output, const at::Tensor& to) {
                                              return torch::mse_loss(output, to);
                                            });
                }),
      Each(HasSubstr("[rank 1/2] Pipeline: forward of chunk 1 in stage 1: the milk is sour")));
}

}  // namespace
}  // namespace unisono::testing
