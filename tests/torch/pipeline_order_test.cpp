// The order of actions on ranks: tables, actions that overtake others, concurrent averages over
// replicas; and the assignment of layers to stages.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"
#include "unisono/torch/parallel/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/tensor/tensor.h"

#include "pipelines.h"
#include "rank_threads.h"

namespace unisono::testing {
namespace {

using parallel::Mesh;
using parallel::Pipeline;
using parallel::PipelineOptions;
using parallel::Stage;
using parallel::Tensors;
using pipeline::Action;
using pipeline::ActionKind;

constexpr std::int64_t kTwelveRows = 12;

double train_once(Pipeline& model) {
  return model.train_step(make_batch(kTwelveRows), make_targets(kTwelveRows), loss_of_classes)
      .item<double>();
}

std::vector<Action> actions_of(const Pipeline& model) {
  std::vector<Action> actions;
  for (const pipeline::Span& span : model.last_step().spans) {
    actions.push_back(span.action);
  }
  return actions;
}

const std::vector<Action>& order_of(const Pipeline& model, int rank) {
  return model.schedule().orders.at(static_cast<std::size_t>(rank));
}

// A linear layer that passes each output to `look`.
template <class Look>
Stage stage_with(Look look) {
  torch::nn::Linear layer(6, 6);
  return {.module = layer.ptr(), .forward = [layer, look](const Tensors& inputs) mutable {
            const torch::Tensor output = layer(inputs.at(0));
            look(output);
            return Tensors{output};
          }};
}

TEST(PipelineTable, IsCarriedOutAsTheScheduleThatItIs) {
  torch::nn::Sequential whole = make_chain();
  const double loss = run_chunks(whole, make_batch(kTwelveRows), make_targets(kTwelveRows), 4);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const std::string& schedule : all_schedules()) {
      const Pipeline by_name(
          group, make_chain(), PipelineOptions{.schedule = schedule, .chunks = 4});
      Pipeline model(
          group,
          make_chain(),
          PipelineOptions{.table = pipeline::parse_csv(pipeline::to_csv(by_name.schedule()), "it"),
                          .is_by_arrival = false});
      EXPECT_EQ(train_once(model), loss) << schedule;
      EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "")
          << schedule;
      EXPECT_EQ(actions_of(model), order_of(by_name, group->rank())) << schedule;
    }
  });
}

TEST(PipelineTable, MayHaveAnyOrderAndPlacement) {
  // The first stage is on the second rank. Backward passes are whole (B) or split in two (I and W).
  const pipeline::Schedule table = pipeline::parse_csv(
      "1F0,1B0,1F1,1F2,1I1,1W1,1B2\n0F0,2F0,2I0,0F1,0F2,2F1,2W0,2F2,2B1,2B2,0B0,0I1,0W1,0B2\n",
      "by hand");
  torch::nn::Sequential whole = make_chain();
  const double loss = run_chunks(whole, make_batch(kTwelveRows), make_targets(kTwelveRows), 3);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const bool is_by_arrival : {false, true}) {
      Pipeline model(
          group, make_chain(), PipelineOptions{.table = table, .is_by_arrival = is_by_arrival});
      EXPECT_EQ(model.last_rank(), 1);
      EXPECT_EQ(train_once(model), loss);
      EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "");
      if (!is_by_arrival) {
        EXPECT_EQ(actions_of(model), order_of(model, group->rank()));
      }
    }
  });
}

// An event on which one thread waits and which another thread signals.
class Event {
 public:
  void happen() { has_happened_ = true; }

  // Returns true if the event happens within this time.
  bool await(std::chrono::milliseconds at_most) const {
    const auto end = std::chrono::steady_clock::now() + at_most;
    while (!has_happened_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return has_happened_;
  }

 private:
  std::atomic<bool> has_happened_ = false;
};

class LateChunk : public ::testing::TestWithParam<bool> {};

// All four chunks run forward before any backward. The last chunk arrives late at the second rank,
// which could start the backward of the first chunk meanwhile.
TEST_P(LateChunk, IsOvertakenByWhatIsReadyWhereThatIsAllowed) {
  const bool is_by_arrival = GetParam();
  Event first_backward;
  const auto make_stage = [&](int stage) {
    return stage_with([&, stage, chunk = 0](const torch::Tensor& output) mutable {
      if (stage == 0 && chunk == 3) {
        EXPECT_EQ(first_backward.await(std::chrono::milliseconds(is_by_arrival ? 20'000 : 200)),
                  is_by_arrival);
      } else if (stage == 1 && chunk == 0) {
        output.register_hook([&](const torch::Tensor& /*gradient*/) { first_backward.happen(); });
      }
      ++chunk;
    });
  };
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    Pipeline model(
        group,
        make_stage,
        PipelineOptions{.schedule = "fill_drain", .chunks = 4, .is_by_arrival = is_by_arrival});
    (void)train_once(model);
    const std::vector<Action> actions = actions_of(model);
    if (group->rank() == 0 || !is_by_arrival) {
      EXPECT_EQ(actions, order_of(model, group->rank()));
      return;
    }
    const Action late{.kind = ActionKind::kForward, .stage = 1, .chunk = 3};
    const Action ready{.kind = ActionKind::kBackward, .stage = 1, .chunk = 0};
    EXPECT_LT(std::ranges::find(actions, ready), std::ranges::find(actions, late));
    EXPECT_THAT(actions, ::testing::UnorderedElementsAreArray(order_of(model, 1)));
  });
}

INSTANTIATE_TEST_SUITE_P(ByArrival, LateChunk, ::testing::Bool());

// If a rank has two stages, the replicas' average of one stage starts before the last action of the
// other. Operations of a group are numbered in the order of their calls.
TEST(PipelineReplicas, AveragesAStageWhileTheRankGoesOnWithAnother) {
  run_ranks(4, [](const std::shared_ptr<ProcessGroup>& world) {
    const Mesh mesh(world, {{"data", 2}, {"pipe", 2}});
    const std::shared_ptr<ProcessGroup>& data = mesh.group("data");
    for (const auto* const schedule :
         {"interleaved_1f1b", "v_min", "v_half", "v_zb", "dual_pipe_v"}) {
      std::vector<Work> last_gradients;
      const auto make_stage = [&](int /*stage*/) {
        torch::nn::Linear layer(torch::nn::LinearOptions(6, 6).bias(false));
        layer->weight.register_hook(
            [&, n_left = std::make_shared<int>(4)](const torch::Tensor& /*gradient*/) {
              if (--*n_left == 0) {
                last_gradients.push_back(data->barrier_async());
              }
            });
        return parallel::stage_of(layer);
      };
      Pipeline model(
          mesh.group("pipe"),
          make_stage,
          PipelineOptions{
              .schedule = schedule, .chunks = 4, .data_group = data, .is_by_arrival = false});
      (void)train_once(model);
      ASSERT_EQ(last_gradients.size(), 2U) << schedule;
      EXPECT_EQ(last_gradients[1].sequence_number() - last_gradients[0].sequence_number(), 2U)
          << schedule;
    }
  });
}

TEST(Pipeline, IsCutByTheCostsOfItsLayers) {
  const std::vector<double> costs{9, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 4};
  const auto names = make_chain()->named_parameters().keys();
  torch::nn::Sequential whole = make_chain();
  (void)run_chunks(whole, make_batch(kTwelveRows), make_targets(kTwelveRows), 4);
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    for (const auto* const schedule : {"1f1b", "v_half"}) {
      Pipeline model(group,
                     make_chain(),
                     PipelineOptions{.schedule = schedule, .chunks = 4, .layer_costs = costs});
      const int n_stages = model.schedule().n_stages();
      const auto ranges = pipeline::cut_by_cost(costs, n_stages);
      EXPECT_NE(ranges, pipeline::cut_evenly(static_cast<int>(costs.size()), n_stages));
      std::vector<std::string> expected;
      for (const int stage : model.stages()) {
        const pipeline::LayerRange& range = ranges.at(static_cast<std::size_t>(stage));
        std::ranges::copy_if(names, std::back_inserter(expected), [&](const std::string& name) {
          const int layer = std::stoi(name);
          return range.begin <= layer && layer < range.end;
        });
      }
      std::vector<std::string> own;
      for (const NamedTensor& parameter : model.named_parameters()) {
        own.push_back(parameter.name);
      }
      EXPECT_EQ(own, expected) << schedule;
      (void)train_once(model);
      EXPECT_EQ(difference(gradients_of(model.named_parameters()), gradients_of(whole)), "")
          << schedule;
    }
  });
}

}  // namespace
}  // namespace unisono::testing
