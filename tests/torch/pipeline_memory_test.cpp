// Memory that a step of a pipeline retains, in bytes of LibTorch's allocator.

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/known_schedules.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/tensor/tensor.h"

#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using nn::CheckpointMode;
using parallel::Pipeline;
using parallel::PipelineOptions;

constexpr int kRanks = 4;
constexpr int kChunks = 8;
constexpr int kLayers = 128;
constexpr std::int64_t kWidth = 16;
constexpr std::int64_t kRowsOfChunk = 256;
constexpr double kBytesOfInput = kRowsOfChunk * kWidth * 4;

// Each layer saves its input. After the gradients of the inputs have been computed, a linear layer
// also keeps the gradient of its output; a GELU does not.
torch::nn::Sequential make_chain_that_keeps_inputs() {
  torch::nn::Sequential chain;
  for (int layer = 0; layer < kLayers; layer += 2) {
    chain->push_back(torch::nn::Linear(kWidth, kWidth));
    chain->push_back(torch::nn::GELU());
  }
  return chain;
}

torch::Tensor sum_of_outputs(const torch::Tensor& output, const torch::Tensor& /*target*/) {
  return output.sum();
}

// Returns the peak in multiples of the size of a layer's input.
double peak_of_step(const std::shared_ptr<ProcessGroup>& group, const std::string& schedule) {
  Pipeline model(group,
                 make_chain_that_keeps_inputs(),
                 {.schedule = schedule, .chunks = kChunks, .measures_memory = true});
  const torch::Tensor batch = torch::ones({kChunks * kRowsOfChunk, kWidth});
  // The first step also allocates the gradients of the parameters.
  for (int step = 0; step < 2; ++step) {
    (void)model.train_step(batch, batch, sum_of_outputs);
  }
  return static_cast<double>(model.last_step().peak_activation_bytes) / kBytesOfInput;
}

double largest(const std::shared_ptr<ProcessGroup>& group, double value) {
  group->all_reduce(as_buffer(std::span(&value, 1)), {.op = kMax});
  return value;
}

TEST(PipelineMemory, IsThatOfThePlanAndWhatIsOnItsWay) {
  // Each of the 8 actions that a rank looks ahead has received one message, and further messages
  // are being sent.
  constexpr double kOnTheWay = 8 + 6;
  run_ranks(kRanks, [](const std::shared_ptr<ProcessGroup>& group) {
    std::map<std::string, double> peaks;
    for (const std::string& name : all_schedules()) {
      const pipeline::Schedule plan = pipeline::find_schedule(name).make(
          {.n_ranks = kRanks, .n_chunks = kChunks, .stages_per_rank = 2});
      const double of_stage = double{kLayers} / plan.n_stages();
      const double planned = pipeline::peak_activations(plan, group->rank()) * of_stage;
      const double peak = peak_of_step(group, name);
      EXPECT_LE(peak, planned + kOnTheWay) << name;
      peaks[name] = largest(group, peak);
      EXPECT_GE(peaks[name], 0.9 * largest(group, planned)) << name;
    }
    EXPECT_LT(peaks["1f1b"], 0.6 * peaks["fill_drain"]);
    EXPECT_LT(peaks["v_half"], 0.87 * peaks["1f1b"]);
    EXPECT_LT(peaks["v_min"], 0.62 * peaks["1f1b"]);
  });
}

TEST(PipelineMemory, IsLessWithCheckpoints) {
  constexpr std::int64_t kRows = 8192;
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    std::map<CheckpointMode, std::int64_t> peaks;
    for (const auto mode :
         {CheckpointMode::kNever, CheckpointMode::kAlways, CheckpointMode::kExceptLast}) {
      Pipeline model(
          group,
          make_chain(),
          PipelineOptions{
              .schedule = "fill_drain", .chunks = 8, .checkpoint = mode, .measures_memory = true});
      (void)model.train_step(make_batch(kRows), make_targets(kRows), loss_of_classes);
      peaks[mode] = model.last_step().peak_activation_bytes;
    }
    EXPECT_LT(peaks[CheckpointMode::kAlways], peaks[CheckpointMode::kNever]);
    EXPECT_LT(peaks[CheckpointMode::kExceptLast], peaks[CheckpointMode::kNever]);
    EXPECT_GT(peaks[CheckpointMode::kAlways], 0);
  });
}

}  // namespace
}  // namespace unisono::testing
