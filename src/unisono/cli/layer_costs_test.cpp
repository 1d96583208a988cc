#include "unisono/cli/layer_costs.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/layer_costs.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::cli {
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

}  // namespace
}  // namespace unisono::cli
