#include "unisono/pipeline/layer_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/known_schedules.h"

#include "support/throws_error.h"

namespace unisono::pipeline {
namespace {

using test::throws_error;
using ::testing::ElementsAre;

// The test of the reader in cli/ covers the round trip.
TEST(LayerCosts, AreWrittenWithTheColumnsThatAreKnown) {
  LayerCosts layers{.times = {{.forward = 1, .backward_input = 2, .backward_weight = 0.5},
                              {.forward = 0.25, .backward_input = 0, .backward_weight = 0}}};
  EXPECT_EQ(to_csv(layers),
            "forward_ms,backward_ms,weight_ms\n"
            "1.0000,2.5000,0.5000\n"
            "0.2500,0.0000,0.0000\n");
  layers.names = {"encoder", "the \"last\", a decoder"};
  layers.activation_mib = {64, 0.125};
  layers.gradient_mib = {8, 0};
  EXPECT_EQ(to_csv(layers),
            "name,forward_ms,backward_ms,weight_ms,activation_mib,gradient_mib\n"
            "encoder,1.0000,2.5000,0.5000,64.000000,8.000000\n"
            "\"the \"\"last\"\", a decoder\",0.2500,0.0000,0.0000,0.125000,0.000000\n");
}

TEST(LayerCosts, OfAPartAddUp) {
  const std::vector<StageTimes> times =
      times_of_parts({{1, 2, 3}, {10, 20, 30}, {100, 200, 300}}, {{0, 1}, {1, 3}});
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].forward, 1);
  EXPECT_EQ(times[1].forward, 110);
  EXPECT_EQ(times[1].backward_input, 220);
  EXPECT_EQ(times[1].backward_weight, 330);
}

std::vector<int> sizes_of(const std::vector<LayerRange>& parts) {
  std::vector<int> sizes;
  for (const LayerRange& part : parts) {
    sizes.push_back(part.count());
  }
  return sizes;
}

// Expects that the parts cover all layers without gaps.
void expect_whole(const std::vector<LayerRange>& parts, int n_layers) {
  int end = 0;
  for (const LayerRange& part : parts) {
    EXPECT_EQ(part.begin, end);
    EXPECT_GE(part.count(), 1);
    end = part.end;
  }
  EXPECT_EQ(end, n_layers);
}

TEST(CutEvenly, SizesDifferByOneAtMost) {
  for (int n_layers = 1; n_layers <= 12; ++n_layers) {
    for (int n_parts = 1; n_parts <= 4; ++n_parts) {
      const auto parts = cut_evenly(n_layers, n_parts);
      EXPECT_EQ(parts.size(), static_cast<std::size_t>(std::min(n_layers, n_parts)));
      expect_whole(parts, n_layers);
      const std::vector<int> sizes = sizes_of(parts);
      EXPECT_LE(sizes.front() - sizes.back(), 1);
      EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
    }
  }
}

TEST(CutEvenly, GivesThese) {
  EXPECT_THAT(sizes_of(cut_evenly(7, 2)), ElementsAre(4, 3));
  EXPECT_THAT(sizes_of(cut_evenly(6, 4)), ElementsAre(2, 2, 1, 1));
  EXPECT_THAT(sizes_of(cut_evenly(8, 3)), ElementsAre(3, 3, 2));
  EXPECT_THAT(sizes_of(cut_evenly(12, 4)), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(sizes_of(cut_evenly(2, 3)), ElementsAre(1, 1));
}

// A widely used loop: starts a part at each layer number that is a multiple of layers / parts,
// which need not be an integer. Returns the devices of each part.
std::vector<std::set<int>> cut_at_multiples(int n_layers, int n_parts) {
  const double length = std::max(static_cast<double>(n_layers) / n_parts, 1.0);
  std::vector<std::set<int>> parts{{0}};  // Includes the encoder.
  for (int layer = 0; layer < n_layers; ++layer) {
    if (layer != 0 && std::fmod(layer, length) == 0) {
      parts.emplace_back();
    }
    parts.back().insert(static_cast<int>(layer / length));
  }
  parts.back().insert(n_parts - 1);  // The decoder.
  return parts;
}

TEST(CutEvenly, DoesWhatCuttingAtMultiplesDoesNot) {
  EXPECT_THAT(cut_at_multiples(8, 2), ElementsAre(ElementsAre(0), ElementsAre(1)));
  // The result is one part on two devices instead of two parts.
  EXPECT_THAT(cut_at_multiples(7, 2), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(cut_at_multiples(6, 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_EQ(cut_evenly(7, 2).size(), 2U);
  EXPECT_EQ(cut_evenly(6, 4).size(), 4U);
}

double largest_sum(const std::vector<double>& costs, const std::vector<LayerRange>& parts) {
  const std::vector<double> sums = sums_of_parts(costs, parts);
  return *std::max_element(sums.begin(), sums.end());
}

// Tries all cuts.
double least_largest_sum(const std::vector<double>& costs, std::size_t begin, int n_parts) {
  double least = std::numeric_limits<double>::infinity();
  double sum = 0;
  if (n_parts == 1) {
    for (std::size_t layer = begin; layer < costs.size(); ++layer) {
      sum += costs[layer];
    }
    return begin < costs.size() ? sum : least;
  }
  for (std::size_t end = begin + 1; end < costs.size(); ++end) {
    sum += costs[end - 1];
    least = std::min(least, std::max(sum, least_largest_sum(costs, end, n_parts - 1)));
  }
  return least;
}

TEST(CutByCost, NoOtherCutHasASmallerLargestPart) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const int n_layers = 1 + static_cast<int>(random() % 10);
    const int n_parts = 1 + static_cast<int>(random() % static_cast<unsigned>(n_layers));
    std::vector<double> costs;
    for (int layer = 0; layer < n_layers; ++layer) {
      costs.push_back(static_cast<double>(random() % 9));
    }
    const auto parts = cut_by_cost(costs, n_parts);
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(n_parts));
    expect_whole(parts, n_layers);
    EXPECT_EQ(largest_sum(costs, parts), least_largest_sum(costs, 0, n_parts));
  }
}

TEST(CutByCost, GivesThese) {
  EXPECT_THAT(sizes_of(cut_by_cost({9, 1, 1, 1, 1, 9}, 3)), ElementsAre(1, 4, 1));
  EXPECT_THAT(sizes_of(cut_by_cost({1, 1, 1, 1}, 4)), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(sizes_of(cut_by_cost({0, 0, 0}, 2)), ElementsAre(1, 2));
}

TEST(CutByCost, NamesWhatIsWrong) {
  constexpr ErrorCode kCode = ErrorCode::kInvalidArgument;
  EXPECT_THAT([] { (void)cut_by_cost({1, 2}, 3); }, throws_error(kCode, "2 layers", "3 parts"));
  EXPECT_THAT([] { (void)cut_by_cost({1, 2}, 0); }, throws_error(kCode, "0 parts"));
  EXPECT_THAT([] { (void)cut_by_cost({1, -2}, 1); }, throws_error(kCode, "layer 1", "-2"));
  EXPECT_THAT([] { (void)cut_by_cost({NAN}, 1); }, throws_error(kCode, "layer 0", "nan"));
  EXPECT_THAT([] { (void)cut_evenly(0, 1); }, throws_error(kCode, "0 layers"));
  EXPECT_THAT([] { (void)cut_evenly(1, 0); }, throws_error(kCode, "0 parts"));
}

// Two stages of 1 ms forward and 2 ms backward.
LayerCosts of_three_layers() {
  return {.times = {{0.5, 0.25, 0.5}, {0.5, 0.75, 0.5}, {1, 1, 1}},
          .activation_mib = {3, 5, 10},
          .gradient_mib = {1, 1, 100}};
}

const std::vector<LayerRange> kTwoParts{{0, 2}, {2, 3}};

TEST(Prediction, HasTheTimesOfTheSimulation) {
  const StepFigures figures = predict_step(one_f_one_b(2, 8), of_three_layers(), kTwoParts);
  EXPECT_EQ(figures.step_ms, 27);
  EXPECT_DOUBLE_EQ(figures.bubble, 1.0 / 9);
}

TEST(Prediction, GradientsComeWithAStagesFirstBackward) {
  // Rank 0 holds two chunks of 8 MiB and, together with the second pair, its gradients of 2 MiB.
  // Rank 1 has one chunk of 10 MiB at a time, and 100 MiB of gradients from its first backward on.
  EXPECT_THAT(predict_step(one_f_one_b(2, 8), of_three_layers(), kTwoParts).memory_mib,
              ElementsAre(18, 110));
  // In fill_drain the gradients appear after the first of eight chunks is freed.
  EXPECT_THAT(predict_step(fill_drain(2, 8), of_three_layers(), kTwoParts).memory_mib,
              ElementsAre(64, 170));
}

TEST(Prediction, ActivationsThatNobodyKnowsTakeNone) {
  LayerCosts layers = of_three_layers();
  layers.activation_mib.clear();
  EXPECT_THAT(predict_step(one_f_one_b(2, 8), layers, kTwoParts).memory_mib, ElementsAre(2, 100));
  layers.gradient_mib.clear();
  EXPECT_THAT(predict_step(one_f_one_b(2, 8), layers, kTwoParts).memory_mib, ElementsAre(0, 0));
}

TEST(Prediction, SaysByHowMuchItWasOff) {
  EXPECT_EQ(compare({.step_ms = 20, .bubble = 0.25, .memory_mib = {8, 0}},
                    {.step_ms = 21, .bubble = 0.2, .memory_mib = {6, 1}}),
            "                 planned    measured          off by\n"
            "step ms           20.000      21.000          +5.0 %\n"
            "bubble %            25.0        20.0     -5.0 points\n"
            "rank 0 MiB         8.000       6.000         -25.0 %\n"
            "rank 1 MiB         0.000       1.000               -\n");
}

}  // namespace

namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Timeline step_of(const Schedule& schedule,
                 const std::vector<StageTimes>& stages,
                 double transfer = 0) {
  return simulate(schedule, time_of(stages), {.transfer = transfer});
}

TEST(Gain, StagesThatAreAlikeAndManyChunksWin) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}), {.n_devices = 2});
  EXPECT_EQ(gain.serial, 48);
  EXPECT_EQ(gain.step, 27);
  EXPECT_EQ(gain.ideal, 27);
  EXPECT_DOUBLE_EQ(gain.bubble, 1.0 / 9);
  EXPECT_DOUBLE_EQ(gain.factor(), 48.0 / 27);
  EXPECT_THAT(gain.reasons, IsEmpty());
  EXPECT_THAT(
      describe(gain, "ms"),
      HasSubstr("1.78 times as fast\nplanned by the stages' times 27.000 ms: off by +0.0 %\n"
                "Pipelining wins"));
}

TEST(Gain, SaysHowFarTheStepIsOffItsPlan) {
  const Schedule schedule = one_f_one_b(2, 8);
  Timeline late = step_of(schedule, {{1, 1, 1}, {1, 1, 1}});
  for (Span& span : late.ranks[0]) {
    span.start += 2.7;
    span.end += 2.7;
  }
  late.ranks[0].front().start = 0;
  late.ranks[0].front().end = 1;
  const Gain gain = gain_of(schedule, late, {.n_devices = 2});
  EXPECT_DOUBLE_EQ(gain.planned, 27);
  EXPECT_DOUBLE_EQ(gain.step, 29.7);
  EXPECT_THAT(describe(gain, "ms"),
              HasSubstr("planned by the stages' times 27.000 ms: off by +10.0 %"));
}

TEST(Gain, TheTableHasTheMeanOfTheChunksInEachStage) {
  const Schedule schedule = one_f_one_b(2, 4);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {2, 3, 4}}), {.n_devices = 2});
  ASSERT_EQ(gain.stages.size(), 2U);
  EXPECT_DOUBLE_EQ(gain.stages[1].forward, 2);
  EXPECT_DOUBLE_EQ(gain.stages[1].backward, 7);
  EXPECT_DOUBLE_EQ(gain.stages[1].share, 0.75);
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("    1     1       2.000        7.000    75.0\n"));
}

TEST(Gain, RanksThatShareACoreCantWin) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain =
      gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}, 0.5), {.n_devices = 1});
  EXPECT_EQ(gain.ideal, 48);
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("2 ranks share 1 core")));
}

TEST(Gain, OneChunkCantWin) {
  const Schedule schedule = fill_drain(2, 1);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}), {.n_devices = 2});
  EXPECT_EQ(gain.factor(), 1);
  EXPECT_THAT(gain.reasons, ElementsAre(HasSubstr("With one chunk")));
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("Pipelining can't win here"));
}

TEST(Gain, AnUnequalCutIsNamedWithItsRank) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain = gain_of(schedule, step_of(schedule, {{1, 1, 1}, {3, 3, 3}}), {.n_devices = 2});
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("Rank 1 has 75 % of the work")));
}

TEST(Gain, MessagesThatTakeLongAreWaitedFor) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain =
      gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}, 4), {.n_devices = 2});
  EXPECT_EQ(gain.ideal, 27);
  EXPECT_GT(gain.bubble, gain.ideal_bubble);
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("is waiting for messages")));
}

TEST(Gain, ChunksThatMakeComputingLongerMayCostAllThatIsWon) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Timeline step = step_of(schedule, {{1, 1, 1}, {1, 1, 1}});
  const Gain gain = gain_of(schedule, step, {.n_devices = 2, .whole_batch = 24});
  EXPECT_LT(gain.best_factor(), 1);
  EXPECT_THAT(gain.reasons, Contains(HasSubstr("2.00 times as long as the whole batch")));
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("can't win here"));
}

TEST(Gain, WhatCouldWinSaysSo) {
  const Schedule schedule = one_f_one_b(2, 8);
  const Gain gain =
      gain_of(schedule, step_of(schedule, {{1, 1, 1}, {1, 1, 1}}, 40), {.n_devices = 2});
  EXPECT_LT(gain.factor(), 1);
  EXPECT_THAT(describe(gain, "ms"), HasSubstr("does not win here, but can"));
}

TEST(Gain, StepsOfAnotherScheduleAreRefused) {
  const Timeline step = step_of(one_f_one_b(2, 4), {{1, 1, 1}, {1, 1, 1}});
  const auto refused = [&](const Schedule& schedule, int n_devices) -> std::string {
    try {
      (void)gain_of(schedule, step, {.n_devices = n_devices});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refused(one_f_one_b(2, 5), 2), HasSubstr("16 of the schedule's 20 actions"));
  EXPECT_THAT(refused(one_f_one_b(2, 3), 2),
              HasSubstr("no forward of chunk 3 in stage 0 on rank 0"));
  EXPECT_THAT(refused(one_f_one_b(1, 4), 2), HasSubstr("on rank 1"));
  EXPECT_THAT(refused(one_f_one_b(2, 4), 0), HasSubstr("0 devices"));
}

}  // namespace
}  // namespace unisono::pipeline
