// The inputs of a pipeline's stages, from the batch and from other stages.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::MakeStage;
using parallel::Pipeline;
using parallel::Stage;
using parallel::Tensors;
using pipeline::Action;
using pipeline::ActionKind;
using ::testing::Each;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

// Returns each rank's error; "" after success.
template <class Body>
std::vector<std::string> errors_of(int world_size, const Body& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  run_ranks(world_size, [&](const Group& group) {
    try {
      body(group);
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(group->rank())] = error.what();
    }
  });
  return errors;
}

// Returns the text of the rank that first reported an error which other ranks forwarded.
std::string first_words(const std::string& error) {
  const std::size_t begin = error.rfind("[rank ");
  return begin == std::string::npos ? error : error.substr(begin);
}

Stage sum_stage(int /*number*/) {
  return {.module = nullptr, .forward = [](const Tensors& inputs) {
            at::Tensor sum = inputs.at(0);
            for (std::size_t i = 1; i < inputs.size(); ++i) {
              sum = sum + inputs[i];
            }
            return Tensors{sum};
          }};
}

struct WrongBatch {
  std::string schedule;
  std::vector<std::int64_t> inputs;  // Sizes of the inputs; -1: missing.
  std::int64_t target;
  std::string problem;
};

class PipelineBatch : public ::testing::TestWithParam<WrongBatch> {};

// Input 1 goes to stage 1, input 2 to stage 2.
TEST_P(PipelineBatch, ThatIsWrongForSeveralStagesIsTheFirstOnesErrorOnAllRanks) {
  const WrongBatch& batch = GetParam();
  const std::vector<std::string> errors = errors_of(3, [&](const Group& group) {
    Pipeline model(group,
                   MakeStage(sum_stage),
                   {.schedule = batch.schedule,
                    .chunks = 2,
                    .inputs = {{.input = 1, .stage = 1}, {.input = 2, .stage = 2}}});
    Tensors inputs;
    for (const std::int64_t size : batch.inputs) {
      inputs.push_back(size < 0 ? at::Tensor() : torch::ones({size, 3}));
    }
    (void)model.train_step(inputs,
                           {torch::ones({batch.target, 3})},
                           [](const Tensors& outputs, const Tensors& targets) {
                             return torch::mse_loss(outputs.at(0), targets.at(0));
                           });
  });
  std::vector<std::string> words;
  words.reserve(errors.size());
  for (const std::string& error : errors) {
    words.push_back(first_words(error));
  }
  EXPECT_THAT(words, Each(batch.problem));
}

INSTANTIATE_TEST_SUITE_P(
    Problems,
    PipelineBatch,
    ::testing::Values(
        WrongBatch{.schedule = "1f1b",
                   .inputs = {5, 4, 4},
                   .target = 5,
                   .problem = "[rank 0/3] Pipeline: input 0 of the batch, f32[5, 3], for stage 0, "
                              "can't be cut into 2 equal chunks along its first dimension"},
        WrongBatch{.schedule = "v_half",
                   .inputs = {4, 5, -1},
                   .target = 5,
                   .problem = "[rank 1/3] Pipeline: input 1 of the batch, f32[5, 3], for stage 1, "
                              "can't be cut into 2 equal chunks along its first dimension"},
        WrongBatch{.schedule = "zb_h1",
                   .inputs = {4, 4, -1},
                   .target = 5,
                   .problem = "[rank 2/3] Pipeline: input 2 of the batch is missing, which stage 2 "
                              "takes"}));

TEST(PipelineInputs, RanksThatGiveThemToOtherStagesAreAllTold) {
  EXPECT_THAT(errors_of(2,
                        [](const Group& group) {
                          const Pipeline model(group,
                                               MakeStage(sum_stage),
                                               {.inputs = {{.input = 1, .stage = group->rank()}}});
                        }),
              Each(HasSubstr("what stages get of the batch is input 0 to stage 0, input 1 to stage "
                             "0 on rank 0 and input 0 to stage 0, input 1 to stage 1 on "
                             "rank 1")));
}

constexpr int kLateChunks = 12;

// Stages 0 and 3 are on the first rank, stages 1 and 2 on the last. The last rank takes each chunk
// through stages 1 and 2 at once. Stage 3 starts after all chunks of stage 0.
pipeline::Schedule made_for_a_late_stage(int n_ranks) {
  pipeline::Schedule schedule{
      .n_chunks = kLateChunks,
      .rank_of_stage = {0, n_ranks - 1, n_ranks - 1, 0},
      .orders = std::vector<std::vector<Action>>(static_cast<std::size_t>(n_ranks))};
  const auto add = [&](ActionKind kind, int stage, int chunk) {
    schedule
        .orders[static_cast<std::size_t>(schedule.rank_of_stage[static_cast<std::size_t>(stage)])]
        .push_back({kind, stage, chunk});
  };
  for (int chunk = 0; chunk < kLateChunks; ++chunk) {
    add(ActionKind::kForward, 0, chunk);
  }
  for (int chunk = 0; chunk < kLateChunks; ++chunk) {
    add(ActionKind::kForward, 1, chunk);
    add(ActionKind::kForward, 2, chunk);
  }
  for (int chunk = 0; chunk < kLateChunks; ++chunk) {
    add(ActionKind::kForward, 3, chunk);
  }
  for (int chunk = 0; chunk < kLateChunks; ++chunk) {
    for (int stage = 3; stage >= 0; --stage) {
      add(ActionKind::kBackward, stage, chunk);
    }
  }
  return schedule;
}

TEST(PipelineInputs, AreTheValuesReturnedAlsoWhereAnotherStageWorksOnThemInPlace) {
  // More data than a rank sends before the receive is posted.
  constexpr std::int64_t kMany = 1 << 19;
  for (const int n_ranks : {1, 2}) {
    std::atomic<bool> is_changed = false;
    run_ranks(n_ranks, [&](const Group& group) {
      const MakeStage make_stage = [&](int number) -> Stage {
        // The module draws no random numbers: otherwise ranks in threads would run one at a time.
        return {.module = torch::nn::Identity().ptr(),
                .forward = [&, number, n_calls = 0](const Tensors& inputs) mutable -> Tensors {
                  const int chunk = n_calls++;
                  if (number == 0) {
                    // Until then no receive is posted for stage 3, which comes much later.
                    const Deadline end = Deadline::after(std::chrono::seconds(30));
                    while (n_ranks == 2 && chunk == 1 && !is_changed && !end.has_passed()) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(1));
                    }
                    return {inputs[0] + 1};
                  }
                  if (number == 1) {
                    const at::Tensor doubled = inputs[0] * 2;
                    return {doubled, doubled};
                  }
                  if (number == 2) {
                    inputs[0].fill_(7);
                    is_changed = true;
                    return {inputs[0].narrow(1, 0, 1)};
                  }
                  return {inputs[0], inputs[1]};
                }};
      };
      Pipeline model(group,
                     make_stage,
                     {.table = made_for_a_late_stage(n_ranks),
                      .skips = {{.from = 1, .output = 1, .to = 3}},
                      .is_by_arrival = false});
      const Tensors outputs = model.forward(Tensors{torch::ones({kLateChunks, kMany})});
      if (group->rank() == model.last_rank()) {
        EXPECT_TRUE(at::equal(outputs.at(0), torch::full({kLateChunks, 1}, 7.0F)));
        EXPECT_TRUE(at::equal(outputs.at(1), torch::full({kLateChunks, kMany}, 4.0F)));
      }
    });
  }
}

}  // namespace
}  // namespace unisono::testing
