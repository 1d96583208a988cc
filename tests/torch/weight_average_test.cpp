// tests/parity compares the averages with PyTorch.

#include "unisono/torch/optim/weight_average.h"

#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/error.h"

namespace unisono::optim {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(WeightAverage, SwapExchangesItWithTheModelsValues) {
  const torch::Tensor value = torch::full({2}, 2.0).set_requires_grad(true);
  WeightAverage average = WeightAverage::uniform({value});
  average.update();
  {
    const torch::NoGradGuard no_grad;
    value.fill_(4);
  }
  average.update();
  average.swap();
  EXPECT_TRUE(value.eq(3).all().item<bool>());
  EXPECT_THAT([&] { average.update(); }, ThrowsMessage<Error>(HasSubstr("swap() first")));
  average.swap();
  EXPECT_TRUE(value.eq(4).all().item<bool>());
  EXPECT_TRUE(average.values()[0].eq(3).all().item<bool>());
}

TEST(WeightAverage, CountersAreCopied) {
  const torch::Tensor counter = torch::zeros({}, torch::kLong);
  WeightAverage average = WeightAverage::exponential({counter}, 0.5);
  for (std::int64_t i = 0; i < 4; ++i) {
    counter.add_(3);
    average.update();
  }
  EXPECT_EQ(average.values()[0].item<std::int64_t>(), 12);
}

TEST(WeightAverage, GoesOnFromWhatWasSaved) {
  const torch::Tensor value = torch::ones({2});
  WeightAverage whole = WeightAverage::uniform({value});
  WeightAverage resumed = WeightAverage::uniform({value});
  whole.update();
  resumed.restore(whole.values(), whole.n_updates());
  value.fill_(5);
  whole.update();
  resumed.update();
  EXPECT_TRUE(resumed.values()[0].eq(3).all().item<bool>()) << resumed.values()[0];
  EXPECT_TRUE(resumed.values()[0].equal(whole.values()[0]));
}

TEST(WeightAverage, WhatDoesNotFitIsRejected) {
  WeightAverage average = WeightAverage::uniform({torch::ones({2})});
  EXPECT_THAT([&] { average.restore({}, 1); }, ThrowsMessage<Error>(HasSubstr("for each tensor")));
  EXPECT_THAT([&] { average.restore({torch::ones({3})}, 1); },
              ThrowsMessage<Error>(HasSubstr("other sizes")));
  EXPECT_THAT([] { (void)WeightAverage::exponential({}, 2); },
              ThrowsMessage<Error>(HasSubstr("decay is 2; it must be from 0 to 1")));
}

}  // namespace
}  // namespace unisono::optim
