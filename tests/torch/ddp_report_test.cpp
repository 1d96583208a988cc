// Breakdown of the time of steps, and detection of slow ranks.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/report/step_report.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "rank_threads.h"

namespace unisono::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Group = std::shared_ptr<ProcessGroup>;

constexpr int kSteps = 5;
constexpr double kDelay = 0.05;
constexpr milliseconds kDelayTime(50);
constexpr std::int64_t kElements = 1000;

struct Delays {
  milliseconds forward{};
  milliseconds backward{};
};

/// A sum of parameters with a delay.
struct SlowSumImpl : torch::nn::Module {
  explicit SlowSumImpl(const Delays& of_passes)
      : delays(of_passes), weight(register_parameter("weight", torch::ones({kElements}))) {}

  torch::Tensor forward() {
    std::this_thread::sleep_for(delays.forward);
    torch::Tensor sum = weight.sum();
    if (sum.requires_grad()) {
      sum.register_hook([this](const torch::Tensor& /*gradient*/) {
        std::this_thread::sleep_for(delays.backward);
      });
    }
    return sum;
  }

  Delays delays;
  torch::Tensor weight;
};

TORCH_MODULE(SlowSum);

using Model = DistributedDataParallel<SlowSum>;

void train(Model& model) {
  for (int step = 0; step < kSteps; ++step) {
    model.zero_grad();
    model().backward();
  }
}

TEST(DdpReport, ARankThatIsSlowInForwardIsNamed) {
  run_ranks(2, [](const Group& group) {
    Model model(SlowSum(Delays{.forward = group->rank() == 1 ? kDelayTime : milliseconds(0)}),
                group);
    train(model);
    const StepReport report = model.report();
    EXPECT_EQ(report.n_steps, static_cast<std::size_t>(kSteps));
    ASSERT_THAT(report.ranks, SizeIs(2));
    EXPECT_EQ(report.slowest, std::optional(1)) << report.table();
    EXPECT_GE(report.ranks[1].forward, kDelay);
    EXPECT_LT(report.ranks[0].forward, kDelay);
    EXPECT_GT(report.ranks[0].waiting, kDelay / 2);
    EXPECT_LT(report.ranks[1].waiting, kDelay / 2);
    EXPECT_GE(report.ranks[0].step, kDelay);
    EXPECT_THAT(report.table(), HasSubstr("rank 1 is the slowest"));
    EXPECT_THAT(report.table(), HasSubstr("forward takes it"));
    for (const RankStepReport& rank : report.ranks) {
      EXPECT_EQ(rank.n_bytes, kElements * 4);
    }
  });
}

TEST(DdpReport, ARankThatIsSlowInBackwardIsNamedForThat) {
  run_ranks(2, [](const Group& group) {
    Model model(SlowSum(Delays{.backward = group->rank() == 0 ? kDelayTime : milliseconds(0)}),
                group);
    train(model);
    const StepReport report = model.report();
    EXPECT_EQ(report.slowest, std::optional(0)) << report.table();
    EXPECT_GE(report.ranks[0].backward, kDelay);
    EXPECT_LT(report.ranks[1].backward, kDelay);
    EXPECT_THAT(report.line(), HasSubstr("backward takes it"));
  });
}

TEST(DdpReport, WhatTheRankDoesElsewhereIsTheRest) {
  run_ranks(2, [](const Group& group) {
    Model model(SlowSum(Delays{}), group);
    for (int step = 0; step < kSteps; ++step) {
      if (group->rank() == 1) {
        std::this_thread::sleep_for(kDelayTime);
      }
      model().backward();
    }
    const StepReport report = model.report();
    EXPECT_EQ(report.slowest, std::optional(1)) << report.table();
    EXPECT_GE(report.ranks[1].other, kDelay / 2);
    EXPECT_LT(report.ranks[0].other, kDelay / 2);
  });
}

TEST(DdpReport, PassesWithoutSynchronizationBelongToTheNextStep) {
  run_ranks(2, [](const Group& group) {
    Model model(SlowSum(Delays{.forward = kDelayTime, .backward = kDelayTime}), group);
    EXPECT_EQ(model.last_step().step, 0);
    {
      const auto guard = model.no_sync();
      model().backward();
      EXPECT_EQ(model.last_step().step, 0);
    }
    model().backward();
    EXPECT_GE(model.last_step().forward, 2 * kDelay);
    EXPECT_GE(model.last_step().backward, 2 * kDelay);
    EXPECT_GE(model.last_step().step, 4 * kDelay);
    EXPECT_EQ(model.report().n_steps, 1U);
  });
}

TEST(DdpReport, PassesWithoutGradientsAreNotOfTheStep) {
  run_ranks(2, [](const Group& group) {
    Model model(SlowSum(Delays{.forward = kDelayTime}), group);
    for (int pass = 0; pass < kSteps; ++pass) {
      const torch::NoGradGuard no_grad;
      (void)model();
    }
    model().backward();
    EXPECT_LT(model.last_step().forward, kSteps * kDelay);
  });
}

TEST(DdpReport, AStepThatFailedIsNone) {
  run_ranks(2, [](const Group& group) {
    Model model(SlowSum(Delays{.forward = kDelayTime}), group);
    EXPECT_EQ(model.report().table(), "no step with communication has been made\n");
    bool fails = group->rank() == 0;
    model.module()->weight.register_hook([&](const torch::Tensor& gradient) {
      if (fails) {
        throw std::runtime_error("no gradient");
      }
      return gradient;
    });
    std::chrono::steady_clock::time_point begin;
    for (int step = 0; step < kSteps; ++step) {
      begin = std::chrono::steady_clock::now();
      EXPECT_ANY_THROW(model().backward());
    }
    fails = false;
    EXPECT_EQ(model.report().n_steps, 0U);
    model().backward();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    EXPECT_EQ(model.report().n_steps, 1U);
    EXPECT_LE(model.last_step().forward, elapsed.count());
    EXPECT_LE(model.last_step().step, elapsed.count());
  });
}

TEST(DdpReport, RanksWithoutBatchesHaveTheOthersSteps) {
  run_ranks(2, [](const Group& group) {
    Model model(SlowSum(Delays{.forward = kDelayTime}), group);
    model.join([&] {
      for (int step = 0; step < (group->rank() == 0 ? kSteps : 1); ++step) {
        model().backward();
      }
    });
    const StepReport report = model.report();
    EXPECT_EQ(report.n_steps, static_cast<std::size_t>(kSteps));
    EXPECT_EQ(report.slowest, std::optional(0)) << report.table();
    EXPECT_LT(report.ranks[1].forward, kDelay);
  });
}

}  // namespace
}  // namespace unisono::testing
