// Combines data, pipeline and tensor parallelism: compares 2 x 2 x 2 ranks in 8 processes with one
// process.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/functions.h"

#include "divided_models.h"

namespace unisono::testing {
namespace {

using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;
using Group = std::shared_ptr<ProcessGroup>;

constexpr int kSteps = 5;
constexpr int kBatch = 4;
constexpr double kRate = 0.5;
constexpr double kLargestNorm = 0.4;

// The structure that the whole and the divided model share: two stages of two layers each.
template <class Transformer>
torch::nn::Sequential layers_of(const Transformer& model, int stage) {
  return stage == 0 ? torch::nn::Sequential(model->embedding, model->first)
                    : torch::nn::Sequential(model->second, model->head);
}

// A pipeline splits a batch along the first dimension, which is the sequence in these models.
Stage make_stage(const DividedTransformer& model, int stage) {
  torch::nn::Sequential layers = layers_of(model, stage);
  return {.module = layers.ptr(), .forward = [layers, stage](const Tensors& inputs) mutable {
            return Tensors{layers->forward(stage == 0 ? inputs[0].t() : inputs[0])};
          }};
}

TensorState train_whole(std::vector<double>& norms) {
  WholeTransformer whole = make_whole();
  torch::optim::SGD optimizer(whole->parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    whole->loss(make_text(step, kBatch)).backward();
    norms.push_back(torch::nn::utils::clip_grad_norm_(whole->parameters(), kLargestNorm));
    optimizer.step();
  }
  return module_state(*whole);
}

void train_divided(const Group& world, bool sequence_parallel, PipelineOptions options) {
  std::vector<double> norms;
  const TensorState expected = train_whole(norms);
  const Mesh mesh(world, {{"data", 2}, {"pipe", 2}, {"tensor", 2}});
  const Group& tensor = mesh.group("tensor");
  const int replica = mesh.coordinate("data");
  const int stage = mesh.coordinate("pipe");
  const DividedTransformer model = make_divided(tensor, sequence_parallel);
  const torch::nn::Sequential mine = layers_of(model, stage);
  options.data_group = mesh.group("data");
  Pipeline pipeline(
      mesh.group("pipe"), [&](int number) { return make_stage(model, number); }, options);
  torch::optim::SGD optimizer(pipeline.parameters(), kRate);
  for (std::size_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    const Text text = make_text(static_cast<int>(step), kBatch);
    const auto share = [&](const at::Tensor& whole) {
      return whole.t().narrow(0, 2 * replica, 2).contiguous();
    };
    (void)pipeline.train_step(share(text.ids),
                              share(text.targets),
                              [&](const at::Tensor& output, const at::Tensor& target) {
                                return parallel::vocab_parallel_cross_entropy(
                                    output, target.t(), tensor);
                              });
    parallel::sum_partial_gradients(*mine);
    EXPECT_NEAR(pipeline.clip_grad_norm(kLargestNorm), norms[step], 1e-9 * norms[step]);
    optimizer.step();
  }
  const TensorState values = parallel::gather_state(parallel::placed_tensors(*model));
  for (const std::string& name : stage == 0 ? std::vector<std::string>{"embedding.", "first."}
                                            : std::vector<std::string>{"second.", "head."}) {
    expect_close(state_below(values, name), state_below(expected, name));
  }
}

// Expects that random numbers drawn by the program itself equal the numbers in one process.
void expect_random_numbers_of_one_process(const Group& tensor) {
  constexpr int kSeed = 3;
  // Two seeds for each of two layers: the seed of its attention and its own.
  constexpr int kSeedsOfLayers = 4;
  DividedTransformer model = make_divided(tensor, /*sequence_parallel=*/false, 0.3);
  torch::manual_seed(kSeed);
  (void)model->loss(make_text(0, kBatch));
  const auto drawn = torch::rand({1}).item<double>();
  torch::manual_seed(kSeed);
  for (int i = 0; i < kSeedsOfLayers; ++i) {
    torch::empty({1}, torch::kLong).random_();
  }
  EXPECT_EQ(drawn, torch::rand({1}).item<double>()) << "rank " << tensor->rank();
}

TEST(ThreeDimensions, TrainAsOneProcess) {
  const Group world = init_process_group();
  ASSERT_EQ(world->world_size(), 8);
  train_divided(world, /*sequence_parallel=*/false, {.chunks = 2});
  train_divided(world,
                /*sequence_parallel=*/true,
                {.schedule = "zb_h1", .chunks = 2, .checkpoint = nn::CheckpointMode::kExceptLast});
  expect_random_numbers_of_one_process(Mesh(world, {{"pipe", 4}, {"tensor", 2}}).group("tensor"));
  destroy_process_group();
}

}  // namespace
}  // namespace unisono::testing
