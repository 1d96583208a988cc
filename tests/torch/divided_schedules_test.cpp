// Compares pipelines of divided layers with one process, for schedules in which a rank may choose
// its next action or that split backward in two. Ranks are threads: two for each part.

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/nn/activation_checkpoint.h"
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

using nn::CheckpointMode;
using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;
using Group = std::shared_ptr<ProcessGroup>;

constexpr int kBatchOfSchedules = 4;
constexpr int kStepsOfSchedules = 2;

// Adds the output of a divided layer that depends on no input. Its gradient is not on a path to the
// stage's input, so the second half of a split backward runs through the layers again.
struct PositionsImpl : torch::nn::Module {
  PositionsImpl(const Group& group, bool sequence_parallel)
      : embedding(register_module(
            "embedding",
            parallel::VocabParallelEmbedding(
                parallel::VocabParallelEmbeddingOptions{.num_embeddings = kLength,
                                                        .embedding_dim = kModelSize,
                                                        .sequence_parallel = sequence_parallel},
                group,
                at::make_generator<at::CPUGeneratorImpl>(5)))) {
    to(torch::kDouble);
  }

  at::Tensor forward(const at::Tensor& input) {
    return input + embedding(torch::arange(kLength)).unsqueeze(1);
  }

  parallel::VocabParallelEmbedding embedding;
};

TORCH_MODULE(Positions);

// Returns the number of stages on two ranks.
int n_stages_of(std::string_view schedule) {
  return schedule == "v_half" ? 4 : 2;
}

std::vector<torch::nn::Sequential> make_layers(const Group& tensor,
                                               int n_stages,
                                               bool sequence_parallel) {
  const DividedTransformer model = make_divided(tensor, sequence_parallel);
  Positions positions(tensor, sequence_parallel);
  if (n_stages == 2) {
    return {torch::nn::Sequential(model->embedding, model->first),
            torch::nn::Sequential(positions, model->second, model->head)};
  }
  return {torch::nn::Sequential(model->embedding),
          torch::nn::Sequential(model->first),
          torch::nn::Sequential(positions, model->second),
          torch::nn::Sequential(model->head)};
}

// A pipeline splits a batch along the first dimension, which is the sequence in these layers.
at::Tensor run(torch::nn::Sequential& layers, int stage, const at::Tensor& input) {
  return layers->forward(stage == 0 ? input.t() : input);
}

parallel::Loss loss_in(const Group& tensor) {
  return [tensor](const at::Tensor& output, const at::Tensor& target) {
    return parallel::vocab_parallel_cross_entropy(output, target.t(), tensor);
  };
}

// Gradients of all stages by name in their layers.
using Gradients = std::vector<TensorState>;

Gradients gradients_of_one_process(int n_stages, int n_chunks) {
  Gradients gradients;
  run_ranks(1, [&](const Group& alone) {
    std::vector<torch::nn::Sequential> layers =
        make_layers(alone, n_stages, /*sequence_parallel=*/false);
    for (int step = 0; step < kStepsOfSchedules; ++step) {
      const Text text = make_text(step, kBatchOfSchedules);
      for (int chunk = 0; chunk < n_chunks; ++chunk) {
        const auto part = [&](const at::Tensor& whole) {
          return whole.t().contiguous().chunk(n_chunks)[static_cast<std::size_t>(chunk)];
        };
        at::Tensor values = part(text.ids);
        for (int stage = 0; stage < n_stages; ++stage) {
          values = run(layers[static_cast<std::size_t>(stage)], stage, values);
        }
        (loss_in(alone)(values, part(text.targets)) / n_chunks).backward();
      }
    }
    for (const torch::nn::Sequential& of_stage : layers) {
      gradients.push_back(gradients_of(*of_stage));
    }
  });
  return gradients;
}

// A wait at the end of a chunk's forward in a stage.
using Pause = std::function<void(int stage, int chunk)>;

struct TrainedBySchedule {
  explicit TrainedBySchedule(
      const Mesh& mesh,
      const PipelineOptions& options,
      bool sequence_parallel = false,
      const Pause& pause = [](int, int) {})
      : layers(make_layers(mesh.group("tensor"), n_stages_of(options.schedule), sequence_parallel)),
        pipeline(
            mesh.group("pipe"),
            [&](int stage) -> Stage {
              torch::nn::Sequential mine = layers[static_cast<std::size_t>(stage)];
              return {.module = mine.ptr(),
                      .forward = [mine, stage, pause, chunks = options.chunks, n_calls = 0](
                                     const Tensors& inputs) mutable {
                        Tensors outputs{run(mine, stage, inputs.at(0))};
                        const RandomPause others_may_draw;
                        pause(stage, n_calls++ % chunks);
                        return outputs;
                      }};
            },
            options) {
    for (int step = 0; step < kStepsOfSchedules; ++step) {
      const Text text = make_text(step, kBatchOfSchedules);
      (void)pipeline.train_step(
          text.ids.t().contiguous(), text.targets.t().contiguous(), loss_in(mesh.group("tensor")));
    }
    for (const int stage : pipeline.stages()) {
      parallel::sum_partial_gradients(*layers[static_cast<std::size_t>(stage)]);
    }
  }

  std::vector<torch::nn::Sequential> layers;
  Pipeline pipeline;
};

class DividedSchedules : public ::testing::TestWithParam<std::tuple<const char*, CheckpointMode>> {
};

TEST_P(DividedSchedules, HaveTheGradientsOfOneProcess) {
  const auto [schedule, checkpoint] = GetParam();
  const PipelineOptions of_all{.schedule = schedule, .checkpoint = checkpoint};
  for (const int chunks : {1, 2, 4}) {
    const Gradients expected = gradients_of_one_process(n_stages_of(of_all.schedule), chunks);
    run_ranks(4, [&](const Group& world) {
      const Mesh mesh(world, {{"pipe", 2}, {"tensor", 2}});
      for (const bool sequence_parallel : {false, true}) {
        SCOPED_TRACE(std::to_string(chunks) + " chunks, " + (sequence_parallel ? "" : "no ") +
                     "sequence parallelism");
        PipelineOptions options = of_all;
        options.chunks = chunks;
        const TrainedBySchedule trained(mesh, options, sequence_parallel);
        for (const int stage : trained.pipeline.stages()) {
          const auto place = static_cast<std::size_t>(stage);
          expect_close(gather_gradients(*trained.layers[place]), expected[place]);
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    SchedulesAndCheckpoints,
    DividedSchedules,
    ::testing::Combine(::testing::Values("fill_drain", "1f1b", "zb_h1", "v_half"),
                       ::testing::Values(CheckpointMode::kNever,
                                         CheckpointMode::kAlways,
                                         CheckpointMode::kExceptLast)));

// Returns the bits of the gradients of this rank's parts.
TensorState own_gradients(const TrainedBySchedule& trained) {
  TensorState gradients;
  for (const NamedTensor& parameter : trained.pipeline.named_parameters()) {
    gradients.emplace(parameter.name, parameter.tensor.grad().clone());
  }
  return gradients;
}

class DividedPipeline : public ::testing::TestWithParam<const char*> {};

TEST_P(DividedPipeline, DividedLayersKeepTheSchedulesOrderByThemselves) {
  const PipelineOptions options{.schedule = GetParam(), .chunks = 4};
  run_ranks(4, [&](const Group& world) {
    const Mesh mesh(world, {{"pipe", 2}, {"tensor", 2}});
    PipelineOptions in_order = options;
    in_order.is_by_arrival = false;
    const TensorState expected = own_gradients(TrainedBySchedule(mesh, in_order));
    // Chunk 2 arrives in time at one rank of the next stage, which is busy with earlier actions,
    // and late at the other rank.
    const int busy_stage = n_stages_of(options.schedule) / 2;
    const Pause pause = [&](int stage, int chunk) {
      if (stage == busy_stage && chunk == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      } else if (stage == 0 && chunk == 2 && mesh.coordinate("tensor") == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      }
    };
    const TrainedBySchedule trained(mesh, options, /*sequence_parallel=*/false, pause);
    std::vector<pipeline::Action> done;
    for (const pipeline::Span& span : trained.pipeline.last_step().spans) {
      done.push_back(span.action);
    }
    const auto rank = static_cast<std::size_t>(mesh.coordinate("pipe"));
    EXPECT_EQ(done, trained.pipeline.schedule().orders[rank]);
    const TensorState gradients = own_gradients(trained);
    ASSERT_EQ(gradients.size(), expected.size());
    for (const auto& [name, gradient] : gradients) {
      EXPECT_TRUE(at::equal(gradient, expected.at(name))) << name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Schedules,
                         DividedPipeline,
                         ::testing::Values("fill_drain", "zb_h1", "v_half"));

}  // namespace
}  // namespace unisono::testing
