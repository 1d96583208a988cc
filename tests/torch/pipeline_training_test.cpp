// Compares pipelines with one process that computes the same chunks one after the other.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "canonical.h"
#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using nn::CheckpointMode;
using parallel::Pipeline;
using parallel::PipelineOptions;

constexpr std::int64_t kBatch = 8;

struct Expected {
  double loss;
  Named gradients;
};

Expected expect_of(int n_chunks, torch::Dtype dtype = torch::kFloat32) {
  torch::nn::Sequential model = make_chain(dtype);
  const double loss = run_chunks(model, make_batch(kBatch, dtype), make_targets(kBatch), n_chunks);
  return {.loss = loss, .gradients = gradients_of(model)};
}

std::string name_of(const PipelineOptions& options) {
  return options.schedule + ", " + std::to_string(options.chunks) + " chunks, checkpoint mode " +
         std::to_string(static_cast<int>(options.checkpoint));
}

class PipelineOfRanks : public ::testing::TestWithParam<int> {};

TEST_P(PipelineOfRanks, HasTheBitsOfOneProcessInEveryScheduleModeAndNumberOfChunks) {
  std::map<int, Expected> expected;
  for (const int chunks : {1, 2, 4, 8}) {
    expected[chunks] = expect_of(chunks);
  }
  run_ranks(GetParam(), [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const std::string& schedule : all_schedules()) {
      for (const int chunks : {1, 2, 4, 8}) {
        for (const auto mode :
             {CheckpointMode::kNever, CheckpointMode::kAlways, CheckpointMode::kExceptLast}) {
          const PipelineOptions options{.schedule = schedule, .chunks = chunks, .checkpoint = mode};
          Pipeline model(group, make_chain(), options);
          const torch::Tensor loss =
              model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
          ASSERT_EQ(loss.item<double>(), expected[chunks].loss) << name_of(options);
          ASSERT_EQ(difference(gradients_of(model.named_parameters()), expected[chunks].gradients),
                    "")
              << name_of(options);
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds, PipelineOfRanks, ::testing::Values(1, 2, 3, 5));

TEST(Pipeline, HasTheGradientsOfTheWholeBatchInDoublePrecision) {
  const Expected whole = expect_of(1, torch::kFloat64);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const std::string& schedule : all_schedules()) {
      for (const int chunks : {1, 2, 4, 8}) {
        const PipelineOptions options{.schedule = schedule, .chunks = chunks};
        Pipeline model(group, make_chain(torch::kFloat64), options);
        (void)model.train_step(
            make_batch(kBatch, torch::kFloat64), make_targets(kBatch), loss_of_classes);
        EXPECT_LT(relative_difference(gradients_of(model.named_parameters()), whole.gradients),
                  1e-9)
            << name_of(options);
      }
    }
  });
}

TEST(Pipeline, EachRankHasItsOwnLayersOnly) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(), PipelineOptions{.layers = {1, 3, 8}});
    const std::vector<std::vector<std::string>> names{
        {"0.weight", "0.bias"},
        {"2.weight", "2.bias", "3.weight", "3.bias"},
        {"6.weight", "8.weight", "8.bias", "11.weight", "11.bias"}};
    std::vector<std::string> own;
    for (const NamedTensor& parameter : model.named_parameters()) {
      own.push_back(parameter.name);
    }
    EXPECT_EQ(own, names[static_cast<std::size_t>(group->rank())]);
  });
}

TEST(Pipeline, LayersOfOtherRanksGoWithTheModelTheyWereIn) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Sequential whole = make_chain();
    std::vector<std::weak_ptr<torch::nn::Module>> layers;
    for (const auto& layer : whole->children()) {
      layers.emplace_back(layer);
    }
    const Pipeline model(group, whole, {});
    whole = torch::nn::Sequential(nullptr);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const bool is_own = (i < layers.size() / 2) == (group->rank() == 0);
      EXPECT_EQ(layers[i].expired(), !is_own) << i;
    }
  });
}

TEST(Pipeline, GradientsAddUpOverStepsAsThoseOfBackwardDo) {
  torch::nn::Sequential whole = make_chain();
  for (int step = 0; step < 2; ++step) {
    (void)run_chunks(whole, make_batch(kBatch), make_targets(kBatch), 2);
  }
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const std::string& schedule : all_schedules()) {
      Pipeline model(group, make_chain(), PipelineOptions{.schedule = schedule, .chunks = 2});
      for (int step = 0; step < 2; ++step) {
        (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
      }
      EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "")
          << schedule;
      model.zero_grad();
      for (const torch::Tensor& parameter : model.parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
      }
    }
  });
}

Named gradients_with_dropout(const std::shared_ptr<ProcessGroup>& group,
                             const PipelineOptions& options) {
  Pipeline model(group, make_chain(torch::kFloat32, 0.4), options);
  model.set_step(3);
  (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
  return gradients_of(model.named_parameters());
}

TEST(Pipeline, DropoutDependsOnNeitherScheduleNorRanksNorCheckpoints) {
  std::map<int, Named> expected;
  run_ranks(1, [&](const std::shared_ptr<ProcessGroup>& alone) {
    for (const int chunks : {1, 2, 8}) {
      expected[chunks] = gradients_with_dropout(alone, {.chunks = chunks});
    }
    EXPECT_NE(difference(gradients_with_dropout(alone, {.chunks = 8, .seed = 1}), expected.at(8)),
              "");
  });
  for (const int world_size : {1, 2, 4}) {
    run_ranks(world_size, [&](const std::shared_ptr<ProcessGroup>& group) {
      for (const std::string& schedule : all_schedules()) {
        for (const int chunks : {1, 2, 8}) {
          for (const auto mode :
               {CheckpointMode::kNever, CheckpointMode::kAlways, CheckpointMode::kExceptLast}) {
            const PipelineOptions options{
                .schedule = schedule, .chunks = chunks, .checkpoint = mode};
            EXPECT_EQ(difference(gradients_with_dropout(group, options), expected.at(chunks)), "")
                << world_size << " ranks, " << name_of(options);
          }
        }
      }
    });
  }
}

TEST(Pipeline, TheProgramsOwnRandomNumbersGoOnAsIfThereWereNoStep) {
  run_ranks(1, [](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(torch::kFloat32, 0.4), {});
    torch::manual_seed(7);
    const torch::Tensor expected = torch::rand({3});
    torch::manual_seed(7);
    (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
    EXPECT_TRUE(torch::equal(torch::rand({3}), expected));
  });
}

TEST(Pipeline, ForwardIsTheWholeModelsForBatchesOfAnySize) {
  torch::nn::Sequential whole = make_chain();
  const torch::NoGradGuard no_grad;
  for (const std::string& schedule : all_schedules()) {
    run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
      Pipeline model(group,
                     make_chain(),
                     PipelineOptions{.schedule = schedule, .chunks = 4, .gathers_outputs = true});
      model.eval();
      for (const std::int64_t n : {8, 1, 3, 7}) {
        const torch::Tensor output = model.forward(make_batch(n));
        ASSERT_TRUE(output.defined()) << schedule << " of " << n;
        EXPECT_TRUE(torch::allclose(output, whole->forward(make_batch(n)))) << schedule << " " << n;
        EXPECT_FALSE(output.requires_grad());
      }
    });
  }
}

TEST(Pipeline, OutputsAreOnTheLastStagesRankUnlessTheyAreGathered) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    for (const auto* const schedule : {"1f1b", "v_half"}) {
      Pipeline model(group,
                     make_chain(),
                     PipelineOptions{.schedule = schedule, .chunks = 2, .keeps_outputs = true});
      const bool is_last = group->rank() == model.last_rank();
      EXPECT_EQ(is_last, group->rank() == (std::string(schedule) == "1f1b" ? 1 : 0));
      EXPECT_EQ(model.forward(make_batch(4)).defined(), is_last);
      (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
      ASSERT_EQ(model.outputs().size(), is_last ? 1U : 0U);
      if (is_last) {
        EXPECT_EQ(model.outputs()[0].sizes(), (std::vector<std::int64_t>{kBatch, 3}));
      }
    }
  });
}

TEST(Pipeline, ATimelineShowsHowLongRanksComputed) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(), PipelineOptions{.chunks = 4});
    (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
    const pipeline::Timeline timeline = model.timeline();
    ASSERT_EQ(timeline.ranks.size(), 2U);
    for (const auto& spans : timeline.ranks) {
      EXPECT_EQ(spans.size(), 8U);
    }
    // A chunk starts on rank 1 after its forward on rank 0 has ended.
    EXPECT_GE(timeline.ranks[1][0].start, timeline.ranks[0][0].end);
    EXPECT_EQ(model.last_step().spans.size(), 8U);
    EXPECT_GT(model.last_step().busy_ms, 0);
    EXPECT_GE(model.last_step().step_ms, model.last_step().busy_ms);
  });
}

// A meeting of two stages: the first stage in its second chunk, and the second stage in its first
// chunk.
class Meeting {
 public:
  // Returns true if both have arrived.
  bool attend() {
    ++n_present_;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (n_present_ < 2 && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return n_present_ >= 2;
  }

 private:
  std::atomic<int> n_present_ = 0;
};

parallel::Stage meeting_stage(Meeting& meeting, int chunk) {
  const auto layer = std::make_shared<torch::nn::LinearImpl>(6, 6);
  return {.module = layer,
          .forward = [&meeting, layer, left = chunk](const std::vector<torch::Tensor>& x) mutable {
            if (left-- == 0) {
              EXPECT_TRUE(meeting.attend());
            }
            return std::vector<torch::Tensor>{layer->forward(x.at(0))};
          }};
}

TEST(Pipeline, ATimelineShowsWhatRanksDidAtTheSameTime) {
  Meeting meeting;
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(
        group,
        [&](int stage) { return meeting_stage(meeting, 1 - stage); },
        PipelineOptions{.schedule = "fill_drain", .chunks = 2});
    (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
    const pipeline::Timeline timeline = model.timeline();
    const auto& first = timeline.ranks.at(0).at(1);
    const auto& second = timeline.ranks.at(1).at(0);
    EXPECT_EQ(describe(first.action), "forward of chunk 1 in stage 0");
    EXPECT_EQ(describe(second.action), "forward of chunk 0 in stage 1");
    EXPECT_LT(first.start, second.end);
    EXPECT_LT(second.start, first.end);
  });
}

TEST(Pipeline, RunsInThreadsOfOneProcess) {
  const Expected expected = expect_of(4);
  parallel::run_in_threads(3, [&](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(group, make_chain(), PipelineOptions{.chunks = 4});
    (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
    EXPECT_EQ(difference(gradients_of(model.named_parameters()), expected.gradients), "");
  });
  const auto fail = [](const std::shared_ptr<ProcessGroup>& group) {
    if (group->rank() == 1) {
      throw std::runtime_error("the milk is sour");
    }
    group->barrier();
  };
  EXPECT_THAT([&] { parallel::run_in_threads(2, fail); },
              ::testing::ThrowsMessage<std::runtime_error>("the milk is sour"));
  const auto throw_number = [](const std::shared_ptr<ProcessGroup>& group) {
    if (group->rank() == 1) {
      throw 7;
    }
    group->barrier();
  };
  EXPECT_THROW(parallel::run_in_threads(2, throw_number), int);
}

TEST(Pipeline, NormalizationHasTheSameMeansInEveryCheckpointMode) {
  const auto make = [] {
    torch::nn::Sequential model(
        torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 3));
    fill(*model);
    return model;
  };
  torch::nn::Sequential whole = make();
  (void)run_chunks(whole, make_batch(kBatch), make_targets(kBatch), 2);
  Named buffers;
  for (const auto& buffer : whole->named_buffers()) {
    buffers[buffer.key()] = buffer.value();
  }
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const auto* const schedule : {"fill_drain", "1f1b", "zb_h1"}) {
      for (const auto mode : {CheckpointMode::kNever, CheckpointMode::kAlways}) {
        Pipeline model(
            group, make(), PipelineOptions{.schedule = schedule, .chunks = 2, .checkpoint = mode});
        (void)model.train_step(make_batch(kBatch), make_targets(kBatch), loss_of_classes);
        Named own;
        for (const NamedTensor& buffer : model.named_buffers()) {
          own[buffer.name] = buffer.tensor;
        }
        EXPECT_EQ(difference(own, buffers), "") << schedule;
        EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "")
            << schedule;
      }
    }
  });
}

}  // namespace
}  // namespace unisono::testing
