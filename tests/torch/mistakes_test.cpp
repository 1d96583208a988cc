// Mistakes that give no error, but are said.
#include <cstddef>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/average_gradients.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Group = std::shared_ptr<ProcessGroup>;

// What `train` writes to stderr, as rank of a world of one.
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

TEST(Mistakes, AveragingTwiceIsSaid) {
  EXPECT_THAT(warnings_of([](Model& model, torch::optim::Optimizer&, const Group& group) {
                model(Factors{1, 1, 1}).backward();
                average_gradients(*group, model.parameters());
              }),
              HasSubstr("backward() has averaged these gradients already"));
}

}  // namespace
}  // namespace unisono::testing
