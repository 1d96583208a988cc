// Mistakes that cause a warning but no error.
#include <cstddef>
#include <memory>
#include <string>
#include <typeinfo>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/average_gradients.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/optim/optimizers.h"

#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Group = std::shared_ptr<ProcessGroup>;

// Returns the stderr of `train` in a world of one rank.
template <class Train>
std::string warnings_of(const Train& train) {
  ::testing::internal::CaptureStderr();
  run_ranks(1, [&](const Group& group) {
    Model model(Scalars(), group);
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    train(model, optimizer, group);
  });
  return ::testing::internal::GetCapturedStderr();
}

void local_pass(Model& model) {
  const auto guard = model.no_sync();
  model(Factors{1, 1, 1}).backward();
}

TEST(Mistakes, StepsOnGradientsOfOneRankAreSaidOnce) {
  const std::string text =
      warnings_of([](Model& model, torch::optim::Optimizer& optimizer, const Group&) {
        for (int step = 0; step < 4; ++step) {
          local_pass(model);
          optimizer.step();
        }
      });
  EXPECT_THAT(text, HasSubstr("rank 0"));
  const std::string sentence = "the ranks' models go apart";
  ASSERT_THAT(text, HasSubstr(sentence));
  EXPECT_EQ(text.find(sentence, text.find(sentence) + 1), std::string::npos);
}

TEST(Mistakes, AccumulationAndAveragesByHandAreNone) {
  EXPECT_THAT(warnings_of([](Model& model, torch::optim::Optimizer& optimizer, const Group& group) {
                for (int step = 0; step < 3; ++step) {
                  optimizer.zero_grad();
                  local_pass(model);
                  model(Factors{1, 1, 1}).backward();
                  optimizer.step();
                }
                for (int step = 0; step < 3; ++step) {
                  optimizer.zero_grad();
                  local_pass(model);
                  average_gradients(*group, model.parameters());
                  optimizer.step();
                }
              }),
              Not(HasSubstr("rank 0")));
}

int count_of(const std::string& sentence, const std::string& text) {
  int n = 0;
  for (auto at = text.find(sentence); at != std::string::npos; at = text.find(sentence, at + 1)) {
    ++n;
  }
  return n;
}

constexpr const char* kAdded = "added the gradients of the last 3 steps to those";

TEST(Mistakes, GradientsThatNobodySetsToZeroAreSaidOnce) {
  EXPECT_EQ(
      count_of(kAdded,
               warnings_of([](Model& model, torch::optim::Optimizer& optimizer, const Group&) {
                 for (int step = 0; step < 8; ++step) {
                   model(Factors{1, 1, 1}).backward();
                   optimizer.step();
                 }
               })),
      1);
}

TEST(Mistakes, GradientsThatStayForAPassAreNone) {
  for (const bool sets_to_none : {true, false}) {
    EXPECT_THAT(warnings_of([&](Model& model, torch::optim::Optimizer& optimizer, const Group&) {
                  for (int step = 0; step < 6; ++step) {
                    optimizer.zero_grad(sets_to_none);
                    local_pass(model);
                    model(Factors{1, 1, 1}).backward();
                    optimizer.step();
                    // A second pass, such as a generator's gradient through a discriminator that
                    // has been updated.
                    model(Factors{1, 1, 1}).backward();
                  }
                  // The gradient of a penalty comes before the start of the pass is detected.
                  for (int step = 0; step < 6; ++step) {
                    optimizer.zero_grad(sets_to_none);
                    torch::Tensor loss = model(Factors{1, 1, 1});
                    (loss + model.parameters()[0].square().sum()).backward();
                    optimizer.step();
                  }
                }),
                Not(HasSubstr(kAdded)))
        << sets_to_none;
  }
}

constexpr const char* kRebuilt = "the first of a new optimizer";

// Returns the stderr of training with an optimizer of LibTorch, which is made once or for each
// step.
template <class Optimizer, class Options>
std::string warnings_of_optimizer(const Options& options, bool is_rebuilt, bool is_before_pass) {
  return warnings_of([&](Model& model, torch::optim::Optimizer&, const Group&) {
    std::unique_ptr<Optimizer> optimizer;
    for (int step = 0; step < 6; ++step) {
      model.zero_grad();
      if (is_before_pass && (is_rebuilt || !optimizer)) {
        optimizer = std::make_unique<Optimizer>(model.parameters(), options);
      }
      model(Factors{1, 1, 1}).backward();
      if (!is_before_pass && (is_rebuilt || !optimizer)) {
        optimizer = std::make_unique<Optimizer>(model.parameters(), options);
      }
      // A common pattern in programs.
      const at::Tensor kept = model.parameters()[0].grad().clone();
      optimizer->step();
    }
  });
}

template <class Optimizer, class Options>
void expect_rebuilding_is_said(const Options& options) {
  for (const bool is_before_pass : {true, false}) {
    EXPECT_EQ(count_of(kRebuilt, warnings_of_optimizer<Optimizer>(options, true, is_before_pass)),
              1)
        << typeid(Optimizer).name() << is_before_pass;
    EXPECT_EQ(count_of(kRebuilt, warnings_of_optimizer<Optimizer>(options, false, is_before_pass)),
              0)
        << typeid(Optimizer).name() << is_before_pass;
  }
}

TEST(Mistakes, LibTorchsOptimizersThatAreMadeForEachStepAreSaidOnce) {
  using namespace torch::optim;
  expect_rebuilding_is_said<SGD>(SGDOptions(0.1).momentum(0.9));
  expect_rebuilding_is_said<SGD>(SGDOptions(0.1).momentum(0.9).weight_decay(0.1).nesterov(true));
  expect_rebuilding_is_said<Adam>(AdamOptions(0.1));
  expect_rebuilding_is_said<AdamW>(AdamWOptions(0.1));
  expect_rebuilding_is_said<Adagrad>(AdagradOptions(0.1));
  expect_rebuilding_is_said<RMSprop>(RMSpropOptions(0.1));
  expect_rebuilding_is_said<optim::AdamW>(optim::AdamWOptions(0.1));
  EXPECT_EQ(count_of(kRebuilt, warnings_of_optimizer<SGD>(SGDOptions(0.1), true, true)), 0)
      << "it has no state to lose";
}

TEST(Mistakes, AveragingTwiceIsSaid) {
  EXPECT_THAT(warnings_of([](Model& model, torch::optim::Optimizer&, const Group& group) {
                model(Factors{1, 1, 1}).backward();
                average_gradients(*group, model.parameters());
              }),
              HasSubstr("backward() has averaged these gradients already"));
}

}  // namespace
}  // namespace unisono::testing
