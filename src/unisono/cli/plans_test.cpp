#include "unisono/cli/plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::cli {
namespace {

using test::throws_error;

TEST(SlurmPlan, ATaskHasTheGpusOfItsParts) {
  EXPECT_EQ(make_slurm_plan({.n_nodes = 3, .gpus_per_node = 4, .n_parts = 2}),
            (SlurmPlan{.n_nodes = 3, .tasks_per_node = 2, .n_tasks = 6, .gpus_per_node = 4}));
  EXPECT_EQ(make_slurm_plan({.n_nodes = 2, .gpus_per_node = 8, .n_parts = 2}),
            (SlurmPlan{.n_nodes = 2, .tasks_per_node = 4, .n_tasks = 8, .gpus_per_node = 8}));
  EXPECT_EQ(make_slurm_plan({.n_nodes = 2, .gpus_per_node = 4}).n_tasks, 8);
  EXPECT_EQ(make_slurm_plan({.n_nodes = 2, .tasks_per_node = 3}).n_tasks, 6);
  EXPECT_EQ(make_slurm_plan({.tasks_per_node = 4, .cpus_per_node = 10}).cpus_per_task, 2);
  EXPECT_EQ(make_slurm_plan({.tasks_per_node = 4, .cpus_per_node = 2}).cpus_per_task, 1);
}

TEST(SlurmPlan, WhatDoesNotGoUpIsRefused) {
  EXPECT_THAT([] { (void)make_slurm_plan({.gpus_per_node = 4, .n_parts = 3}); },
              throws_error(ErrorCode::kInvalidArgument, "4 GPUs can't be divided", "take 3 each"));
  EXPECT_THAT([] { (void)make_slurm_plan({.n_parts = 2}); },
              throws_error(ErrorCode::kInvalidArgument, "give --gpus-per-node"));
  EXPECT_THAT([] { (void)make_slurm_plan({.n_nodes = 0}); },
              throws_error(ErrorCode::kInvalidArgument, "at least 1"));
}

TEST(SlurmPlan, TheScriptAsksForIt) {
  EXPECT_EQ(
      batch_script(
          {.n_nodes = 3, .tasks_per_node = 2, .n_tasks = 6, .gpus_per_node = 4, .cpus_per_task = 8},
          "./train --epochs 3"),
      "#!/bin/sh\n"
      "#SBATCH --nodes=3\n"
      "#SBATCH --ntasks-per-node=2\n"
      "#SBATCH --gres=gpu:4\n"
      "#SBATCH --cpus-per-task=8\n"
      "# 6 ranks\n"
      "srun --cpus-per-task=\"$SLURM_CPUS_PER_TASK\" ./train --epochs 3\n");
}

TEST(SlurmPlan, TheScriptLeavesToSlurmWhatWasNotWished) {
  EXPECT_EQ(batch_script({.n_nodes = 2, .tasks_per_node = 3, .n_tasks = 6}, "./train"),
            "#!/bin/sh\n"
            "#SBATCH --nodes=2\n"
            "#SBATCH --ntasks-per-node=3\n"
            "# 6 ranks\n"
            "srun ./train\n");
}

}  // namespace

namespace {

using pipeline::LayerCosts;
using test::throws_error;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LayerCostsFile : public ::testing::Test {
 protected:
  LayerCosts read(const std::string& text) {
    return read_layer_costs(folder_.write("layers.csv", text));
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(LayerCostsFile, WeightsTakeHalfOfBackwardWhereNothingElseIsKnown) {
  const LayerCosts costs = read("name,forward_ms,backward_ms\nencoder,1,3\nlayer 1,2.5,4\n");
  ASSERT_EQ(costs.times.size(), 2U);
  EXPECT_EQ(costs.times[0].forward, 1);
  EXPECT_EQ(costs.times[0].backward_input, 1.5);
  EXPECT_EQ(costs.times[0].backward_weight, 1.5);
  EXPECT_EQ(costs.times[1].sum(), 6.5);
  EXPECT_THAT(costs.activation_mib, IsEmpty());
}

TEST_F(LayerCostsFile, ColumnsMayComeInAnyOrder) {
  const LayerCosts costs = read("activation_mib,backward_ms,weight_ms,forward_ms\n64,3,1,2\n");
  EXPECT_EQ(costs.times[0].forward, 2);
  EXPECT_EQ(costs.times[0].backward_input, 2);
  EXPECT_EQ(costs.times[0].backward_weight, 1);
  EXPECT_THAT(costs.activation_mib, ElementsAre(64));
}

TEST_F(LayerCostsFile, WhatIsWrittenIsReadBack) {
  const LayerCosts costs = read(
      pipeline::to_csv({.names = {"a, \"b\"\nc", "d"},
                        .times = {{.forward = 1, .backward_input = 2, .backward_weight = 0.5},
                                  {.forward = 0.25, .backward_input = 0.125, .backward_weight = 4}},
                        .activation_mib = {64, 0.5},
                        .gradient_mib = {1, 2}}));
  ASSERT_EQ(costs.times.size(), 2U);
  EXPECT_EQ(costs.times[0].forward, 1);
  EXPECT_EQ(costs.times[0].backward_input, 2);
  EXPECT_EQ(costs.times[0].backward_weight, 0.5);
  EXPECT_EQ(costs.times[1].backward(), 4.125);
  EXPECT_EQ(costs.times[1].backward_weight, 4);
  EXPECT_THAT(costs.activation_mib, ElementsAre(64, 0.5));
}

TEST_F(LayerCostsFile, WhatIsWrongIsNamed) {
  const auto expect_refused = [this](const std::string& text, const auto&... parts) {
    EXPECT_THAT([&] { (void)read(text); },
                throws_error(ErrorCode::kInvalidArgument, "layers.csv", parts...));
  };
  expect_refused("forward_ms,backward\n1,2\n", "columns forward_ms and backward_ms");
  expect_refused("forward_ms,backward_ms\n", "there are no layers");
  expect_refused("forward_ms,backward_ms\n1,2\n1,x\n", "csv:3: backward_ms is \"x\"");
  expect_refused("forward_ms,backward_ms\n1,-2\n", "csv:2: backward_ms is \"-2\"");
  expect_refused("forward_ms,backward_ms\nnan,2\n", "csv:2: forward_ms is \"nan\"");
  expect_refused("forward_ms,backward_ms\n,2\n", "csv:2: forward_ms is \"\"");
  expect_refused(
      "forward_ms,backward_ms,weight_ms\n1,2,3\n", "csv:2: weight_ms", "3 is more than 2");
}

TEST_F(LayerCostsFile, RecordsThatAreNoCsvAreNamed) {
  const auto expect_refused = [this](const std::string& text, const auto&... parts) {
    EXPECT_THAT([&] { (void)read(text); },
                throws_error(ErrorCode::kCorruptData, "layers.csv", parts...));
  };
  expect_refused("name,forward_ms,backward_ms\na,1,2\n\"b\n,1,2\n",
                 "csv:3: a quote is never closed");
  expect_refused("forward_ms,backward_ms\n\n1,2,3\n", "csv:3: 3 fields for 2 columns");
}

}  // namespace

namespace {

using pipeline::find_schedule;
using pipeline::LayerRange;
using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(PipelinePlan, SaysWhatAStepTakes) {
  PipelineWish wish;
  wish.rank_times = {.forward = 1, .backward_input = 1, .backward_weight = 1};
  EXPECT_THAT(
      describe(make_pipeline_plan(wish, find_schedule("1f1b"))),
      HasSubstr("1f1b: 4 ranks, 4 stages, 8 chunks\n"
                "step 33.000 ms; one rank after the other takes 96.000 ms, 2.91 times that\n"
                "bubble 27.3 %, by the formula 27.3 %\n"
                "\n"
                "rank    stages     busy ms  bubble %  activations\n"
                "   0         0      24.000      27.3            4\n"
                "   1         1      24.000      27.3            3\n"));
}

TEST(PipelinePlan, StagesOfARankShareItsTime) {
  PipelineWish wish;
  wish.rank_times = {.forward = 1, .backward_input = 1, .backward_weight = 1};
  const std::string text = describe(make_pipeline_plan(wish, find_schedule("interleaved_1f1b")));
  EXPECT_THAT(text, HasSubstr("interleaved_1f1b: 4 ranks, 8 stages, 8 chunks\nstep 28.500 ms;"));
  EXPECT_THAT(text, HasSubstr("bubble 15.8 %, by the formula 15.8 %"));
  EXPECT_THAT(text, HasSubstr("\n   0       0,4      24.000      15.8           11\n"));
}

TEST(PipelinePlan, FormulasAreOfMessagesThatTakeNoTime) {
  PipelineWish wish{.transfer_ms = 0.5};
  EXPECT_THAT(describe(make_pipeline_plan(wish, find_schedule("1f1b"))),
              HasSubstr("by the formula - %"));
}

PipelineWish of_layers() {
  // The second half of the layers is fast and large.
  pipeline::LayerCosts layers;
  for (const double time : {4, 4, 4, 4, 1, 1, 1, 1}) {
    layers.times.push_back({.forward = time, .backward_input = time, .backward_weight = time});
    layers.activation_mib.push_back(5 - time);
  }
  return {.n_ranks = 2, .n_chunks = 4, .layers = layers};
}

TEST(PipelinePlan, LayersAreDividedByTimeMemoryOrCount) {
  PipelineWish wish = of_layers();
  const auto parts_by = [&](Balance balance) {
    wish.balance = balance;
    return make_pipeline_plan(wish, find_schedule("1f1b")).parts;
  };
  EXPECT_THAT(parts_by(Balance::kTime), ElementsAre(LayerRange{0, 2}, LayerRange{2, 8}));
  EXPECT_THAT(parts_by(Balance::kMemory), ElementsAre(LayerRange{0, 5}, LayerRange{5, 8}));
  EXPECT_THAT(parts_by(Balance::kCount), ElementsAre(LayerRange{0, 4}, LayerRange{4, 8}));
}

TEST(PipelinePlan, MemoryIsThatOfTheActivationsThatLive) {
  PipelineWish wish = of_layers();
  wish.balance = Balance::kCount;
  // Two activations of 4 layers of 1 MiB on rank 0, one of 4 layers of 4 MiB on rank 1.
  const std::string text = describe(make_pipeline_plan(wish, find_schedule("1f1b")));
  EXPECT_THAT(text, HasSubstr("layers"));
  EXPECT_THAT(text, HasSubstr("   0         0             0-3     192.000"));
  EXPECT_THAT(text, HasSubstr("            2         8.0\n"));
  EXPECT_THAT(text, HasSubstr("            1        16.0\n"));
}

TEST(PipelinePlan, WhatCannotBeDividedIsRefused) {
  PipelineWish wish = of_layers();
  wish.n_ranks = 9;
  EXPECT_THAT([&] { (void)make_pipeline_plan(wish, find_schedule("1f1b")); },
              throws_error(ErrorCode::kInvalidArgument, "8 layers", "9 stages"));
  wish.n_ranks = 2;
  wish.layers->activation_mib.clear();
  wish.balance = Balance::kMemory;
  EXPECT_THAT([&] { (void)make_pipeline_plan(wish, find_schedule("1f1b")); },
              throws_error(ErrorCode::kInvalidArgument, "activation_mib"));
}

TEST(PipelinePlan, ATableHasItsOwnRanksAndChunks) {
  const PipelinePlan plan =
      make_pipeline_plan({}, pipeline::parse_csv("0F0,0B0\n1F0,1B0\n", "mine.csv"), "mine.csv");
  EXPECT_THAT(describe(plan), HasSubstr("mine.csv: 2 ranks, 2 stages, 1 chunks"));
}

TEST(PipelinePlan, SchedulesCompareByThePartOfTheModelThatARankHas) {
  PipelineWish wish{.n_ranks = 4, .n_chunks = 8};
  wish.rank_times = {.forward = 1, .backward_input = 1, .backward_weight = 1};
  std::vector<PipelinePlan> plans;
  for (const char* name : {"fill_drain", "1f1b", "v_half", "v_zb"}) {
    plans.push_back(make_pipeline_plan(wish, find_schedule(name)));
  }
  EXPECT_EQ(compare(plans),
            "schedule          stages     step ms  bubble %  formula %  activations\n"
            "fill_drain             4      33.000      27.3       27.3          8.0\n"
            "1f1b                   4      33.000      27.3       27.3          4.0\n"
            "v_half                 8      27.500      12.7     <=15.8          3.0\n"
            "v_zb                   8      25.500       5.9        5.9          4.0\n"
            "\n"
            "activations: the most that a rank holds, in chunks of all of the rank's stages\n");
}

}  // namespace
}  // namespace unisono::cli
