#include "unisono/cli/pipeline_plan.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/csv.h"
#include "unisono/pipeline/known_schedules.h"

#include "support/throws_error.h"

namespace unisono::cli {
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
            "activations: what a rank holds at most, of a chunk in all of the rank's stages\n");
}

}  // namespace
}  // namespace unisono::cli
