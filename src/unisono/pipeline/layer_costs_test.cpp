#include "unisono/pipeline/layer_costs.h"

#include <gtest/gtest.h>

namespace unisono::pipeline {
namespace {

// That it is read back as it was is a test of the reader's, in cli/.
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

}  // namespace
}  // namespace unisono::pipeline
