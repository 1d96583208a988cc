// Gradients with an infinity or NaN on one rank.
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns an infinity only on rank 1, in its w1.
Factors with_one_infinity(const Group& group) {
  return {2, group->rank() == 1 ? kInfinity : 3, 4};
}

TEST(NonFiniteGradients, AreNamedOnAllRanksBeforeAnyOfThemSteps) {
  for (const bool find_unused : {false, true}) {
    run_ranks(3, [&](const Group& group) {
      Model model(Scalars(),
                  group,
                  {.find_unused_parameters = find_unused,
                   .non_finite_gradients = NonFiniteGradients::kThrow});
      model(Factors{1, 2, 3}).backward();
      model.zero_grad();
      expect_error(ErrorCode::kInvalidArgument,
                   AllOf(HasSubstr("[rank " + std::to_string(group->rank()) + "]"),
                         HasSubstr("gradients of pass 2 have an infinity or NaN: rank 1 in 'w1'")),
                   [&] { model(with_one_infinity(group)).backward(); });
      for (const at::Tensor& parameter : model.parameters()) {
        EXPECT_FALSE(parameter.grad().defined());
      }
      model(Factors{1, 2, 3}).backward();
      EXPECT_EQ(gradients_of(model), values({1, 2, 3})) << "the job goes on";
    });
  }
}

TEST(NonFiniteGradients, LeaveTheStepOutOnAllRanks) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group, {.non_finite_gradients = NonFiniteGradients::kSkip});
    torch::optim::SGD optimizer(model.parameters(), torch::optim::SGDOptions(0.5).momentum(0.9));
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad();
      model(step == 0 ? Factors{1, 1, 1} : with_one_infinity(group)).backward();
      optimizer.step();
      EXPECT_EQ(model.module()->w[1].item<float>(), 0.5F) << "after step " << step;
    }
    EXPECT_EQ(model.n_skipped_passes(), 1);
  });
}

TEST(NonFiniteGradients, ReachAllRanksByDefault) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group);
    model(with_one_infinity(group)).backward();
    EXPECT_EQ(gradients_of(model)[1], std::numeric_limits<float>::infinity());
  });
}

TEST(NonFiniteGradients, OfAPassThatWasGivenUpAreForgotten) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group, {.non_finite_gradients = NonFiniteGradients::kThrow});
    const at::Tensor last = model.module()->w[0];  // in backward
    const unsigned trap = last.register_hook(
        [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no luck"); });
    EXPECT_THROW(model(Factors{1, 2, kInfinity}).backward(), std::runtime_error);
    last.remove_hook(trap);
    model.zero_grad();
    model(Factors{1, 2, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({1, 2, 3}));
  });
}

TEST(NonFiniteGradients, AreFoundWithShards) {
  run_ranks(2, [](const Group& group) {
    Model model(
        Scalars(), group, {.non_finite_gradients = NonFiniteGradients::kThrow, .logical_ranks = 6});
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("rank 0 in 'w2'"), [&] {
      model.for_each_shard(
          [&](int shard) { model(Factors{1, 1, shard == 1 ? kInfinity : 1}).backward(); });
    });
    model.for_each_shard([&](int) { model(Factors{1, 1, 2}).backward(); });
    EXPECT_EQ(gradients_of(model), values({1, 1, 2}));
  });
}

TEST(NonFiniteGradients, AreFoundUnderJoin) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group, {.non_finite_gradients = NonFiniteGradients::kSkip});
    model.join([&] {
      for (int step = 0; step < 2 + group->rank(); ++step) {
        model.zero_grad();
        model(step == 2 ? with_one_infinity(group) : Factors{1, 2, 3}).backward();
      }
    });
    EXPECT_EQ(model.n_skipped_passes(), group->rank() == 1 ? 1 : 0);
  });
}

TEST(NonFiniteGradients, ThrownInTheFirstPassUnderJoinLeaveARankWithoutBatchesInStep) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group, {.non_finite_gradients = NonFiniteGradients::kThrow});
    model.join([&] {
      if (group->rank() == 1) {
        EXPECT_THROW(model(with_one_infinity(group)).backward(), Error);
        model.zero_grad();
        model(Factors{1, 2, 3}).backward();
        EXPECT_EQ(gradients_of(model), values({0.5, 1, 1.5}));
      }
    });
    // The next pass of both ranks shows that neither is ahead of the other.
    model.zero_grad();
    model(Factors{2, 4, 6}).backward();
    EXPECT_EQ(gradients_of(model), values({2, 4, 6}));
  });
}

}  // namespace
}  // namespace unisono::testing
