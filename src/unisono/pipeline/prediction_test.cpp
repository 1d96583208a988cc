#include "unisono/pipeline/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/pipeline/generators.h"

namespace unisono::pipeline {
namespace {

using ::testing::ElementsAre;

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
  // Rank 0 holds two chunks of 8 MiB and, beside the second pair, its gradients of 2 MiB. Rank 1
  // has one chunk of 10 MiB at a time, and 100 MiB of gradients from its first backward on.
  EXPECT_THAT(predict_step(one_f_one_b(2, 8), of_three_layers(), kTwoParts).memory_mib,
              ElementsAre(18, 110));
  // Here they come when the first of eight chunks has gone.
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
}  // namespace unisono::pipeline
