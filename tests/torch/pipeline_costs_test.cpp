#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "pipelines.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using parallel::measure_layers;
using test::throws_error;
using ::testing::ElementsAre;

constexpr double kMiB = 1 << 20;

torch::Tensor sum_of_rows(const torch::Tensor& input) {
  return input.sum(1, /*keepdim=*/true);
}

TEST(MeasureLayers, HasARowForEachLayer) {
  torch::nn::Sequential model(
      torch::nn::Linear(64, 128), torch::nn::ReLU(), torch::nn::Linear(128, 8));
  const pipeline::LayerCosts costs = measure_layers(model, {torch::randn({32, 64})});
  EXPECT_THAT(
      costs.names,
      ElementsAre("0 torch::nn::LinearImpl", "1 torch::nn::ReLUImpl", "2 torch::nn::LinearImpl"));
  ASSERT_EQ(costs.times.size(), 3U);
  for (const pipeline::StageTimes& times : costs.times) {
    EXPECT_GE(times.forward, 0);
    EXPECT_GE(times.backward_input, 0);
    EXPECT_GE(times.backward_weight, 0);
  }
  // ReLU saves its result and not its input.
  EXPECT_THAT(costs.activation_mib, ElementsAre(32 * 128 * 4 / kMiB, 0, 32 * 8 * 4 / kMiB));
  EXPECT_THAT(costs.gradient_mib,
              ElementsAre((64 + 1) * 128 * 4 / kMiB, 0, (128 + 1) * 8 * 4 / kMiB));
}

TEST(MeasureLayers, WhatALayerLetsGoOfIsNotKept) {
  torch::nn::Sequential model(torch::nn::Linear(64, 128), torch::nn::Functional(sum_of_rows));
  EXPECT_THAT(measure_layers(model, {torch::randn({32, 64})}).activation_mib,
              ElementsAre(32 * 4 / kMiB, 0));
}

TEST(MeasureLayers, TheLossIsThatOfTheLastLayer) {
  torch::nn::Sequential model(torch::nn::Linear(8, 4), torch::nn::Linear(4, 2));
  int n_calls = 0;
  const parallel::LayerMeasurement options{.trials = 1, .loss = [&](const torch::Tensor& output) {
                                             EXPECT_EQ(output.size(1), 2);
                                             ++n_calls;
                                             return output.square().mean();
                                           }};
  (void)measure_layers(model, {torch::randn({3, 8})}, options);
  EXPECT_EQ(n_calls, 5);
}

// Returns all values that the measurement could change.
Named all_of(const torch::nn::Sequential& model) {
  Named all;
  for (const auto& parameter : model->named_parameters()) {
    all[parameter.key()] = parameter.value().detach().clone();
    all["gradient of " + parameter.key()] =
        parameter.value().grad().defined() ? parameter.value().grad().clone() : torch::zeros({0});
  }
  for (const auto& buffer : model->named_buffers()) {
    all[buffer.key()] = buffer.value().clone();
  }
  return all;
}

TEST(MeasureLayers, LeavesTheModelAsItWas) {
  torch::nn::Linear shared(6, 6);
  torch::nn::Sequential model(shared,
                              torch::nn::BatchNorm1d(6),
                              torch::nn::Dropout(0.5),
                              shared,
                              torch::nn::ReLU(torch::nn::ReLUOptions().inplace(true)),
                              torch::nn::Linear(6, 3));
  const torch::Tensor chunk = torch::randn({4, 6});
  const torch::Tensor kept_chunk = chunk.clone();
  model->forward(chunk).sum().backward();
  shared->bias.mutable_grad() = torch::Tensor();
  const Named before = all_of(model);
  torch::manual_seed(5);
  const torch::Tensor next = torch::rand({4});
  torch::manual_seed(5);
  (void)measure_layers(model, {chunk});
  EXPECT_TRUE(torch::equal(torch::rand({4}), next));
  EXPECT_EQ(difference(all_of(model), before), "");
  EXPECT_FALSE(shared->bias.grad().defined());
  EXPECT_TRUE(torch::equal(chunk, kept_chunk));
}

TEST(MeasureLayers, WhatIsWrongIsNamed) {
  const auto expect_refused = [](const torch::nn::Sequential& model,
                                 const parallel::Tensors& chunk,
                                 int trials,
                                 const std::string& what) {
    EXPECT_THAT([&] { (void)measure_layers(model, chunk, {.trials = trials}); },
                throws_error(ErrorCode::kInvalidArgument, "measure_layers: ", what));
  };
  const torch::nn::Sequential model(torch::nn::Linear(6, 6), torch::nn::Linear(5, 3));
  const torch::Tensor chunk = torch::randn({4, 6});
  expect_refused(model, {chunk}, 0, "0 trials");
  expect_refused(model, {}, 1, "an input of the first layer is missing");
  expect_refused(model, {torch::Tensor()}, 1, "an input of the first layer is missing");
  expect_refused(torch::nn::Sequential(), {chunk}, 1, "the model has no layers");
  expect_refused(model, {chunk}, 1, "layer 1 torch::nn::LinearImpl: ");
}

}  // namespace
}  // namespace unisono::testing
