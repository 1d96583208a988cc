// Backward passes detect ranks with diverged models.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Group = std::shared_ptr<ProcessGroup>;

DistributedDataParallelOptions throwing() {
  return {.parameter_drift = ParameterDrift::kThrow};
}

const Factors kFactors{1, 1, 1};

// Returns the stderr of `train` on three ranks.
std::string warnings_of(const std::function<void(Model& model, int rank)>& train,
                        const DistributedDataParallelOptions& options = {}) {
  ::testing::internal::CaptureStderr();
  run_ranks(3, [&](const Group& group) {
    Model model(Scalars(), group, options);
    train(model, group->rank());
  });
  return ::testing::internal::GetCapturedStderr();
}

void add_to(const torch::Tensor& parameter, double difference) {
  const torch::NoGradGuard no_grad;
  parameter.add_(difference);
}

constexpr const char* kDrift = "parameters are no longer the same on all ranks";

TEST(ParameterDrift, IsSaidOnceWithTheTensorAndTwoRanks) {
  const std::string text = warnings_of([](Model& model, int rank) {
    model(kFactors).backward();
    if (rank == 2) {
      add_to(model.module()->w[1], 0x1p-23);
    }
    for (int step = 0; step < 3; ++step) {
      model(kFactors).backward();
    }
  });
  EXPECT_THAT(text,
              AllOf(HasSubstr("[unisono rank 0] warning: DistributedDataParallel: "),
                    HasSubstr("tensor 'w1' is f32[1] with hash"),
                    HasSubstr("on rank 0 and"),
                    HasSubstr("on rank 2")));
  ASSERT_THAT(text, HasSubstr(kDrift));
  EXPECT_EQ(text.find(kDrift, text.find(kDrift) + 1), std::string::npos) << text;
}

TEST(ParameterDrift, EndsThePassOnAllRanksWhereThatWasAskedFor) {
  on_two_ranks(throwing(), [](Model& model, double rank) {
    if (rank == 1) {
      add_to(model.module()->w[0], 1);
    }
    for (int step = 0; step < 2; ++step) {
      expect_error(ErrorCode::kMismatch, AllOf(HasSubstr(kDrift), HasSubstr("'w0'")), [&] {
        model(kFactors).backward();
      });
    }
    const torch::NoGradGuard no_grad;
    model.module()->w[0].fill_(3);
    const torch::AutoGradMode with_gradients(true);
    model.zero_grad();
    model(kFactors).backward();
    EXPECT_EQ(gradients_of(model), values({1, 1, 1})) << "the training can go on";
  });
}

// A difference in any single element of a large model is detected after at most as many passes as
// there are parts.
TEST(ParameterDrift, OfOneElementOfMillionsIsFound) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Linear layer(1024, 1024);
    DistributedDataParallel model(layer, group, throwing());
    if (group->rank() == 1) {
      add_to(layer->weight[700][3], 1);
    }
    const auto train = [&] {
      for (int step = 0; step < 128; ++step) {
        model(torch::ones({1, 1024})).sum().backward();
      }
    };
    expect_error(ErrorCode::kMismatch, HasSubstr("tensor 'weight'"), train);
  });
}

TEST(ParameterDrift, IsNoneInATrainingOfAnyKind) {
  EXPECT_THAT(warnings_of([](Model& model, int rank) {
                torch::optim::SGD optimizer(model.parameters(),
                                            torch::optim::SGDOptions(0.1).momentum(0.9));
                const double mine = 1 + rank;
                const auto step = [&](const Factors& factors) {
                  optimizer.zero_grad();
                  model(factors).backward();
                  optimizer.step();
                };
                for (int i = 0; i < 5; ++i) {
                  step({mine, 2, mine * mine});
                  const auto guard = model.no_sync();
                  model(Factors{mine, mine, mine}).backward();
                }
                // Ranks 0 and 1 finish early.
                model.join([&] {
                  for (int i = 0; i < 2 + rank; ++i) {
                    step({mine, 3, 4});
                  }
                });
                // Momentum fell behind on the ranks that finished early.
                optimizer.state().clear();
                for (int i = 0; i < 3; ++i) {
                  step({mine, 3, 4});
                }
              }),
              Not(HasSubstr(kDrift)));
}

// With 4 shards on 2 ranks an all_reduce adds the shards. With 5 shards on 3 ranks no all_reduce is
// possible, and the drift marks are sent separately.
TEST(ParameterDrift, IsFoundWhereStepsAreMadeOfShards) {
  for (const auto& [world_size, n_shards] : {std::pair(2, 4), std::pair(3, 5)}) {
    run_ranks(world_size, [&, n_shards = n_shards](const Group& group) {
      Model model(
          Scalars(), group, {.logical_ranks = n_shards, .parameter_drift = ParameterDrift::kThrow});
      torch::optim::SGD optimizer(model.parameters(), 0.5);
      const auto step = [&] {
        model.for_each_shard([&](int shard) { model(Factors{shard + 1.0, 2, 3}).backward(); });
        optimizer.step();
      };
      for (int i = 0; i < 3; ++i) {
        step();
      }
      const at::Tensor& w1 = model.module()->w[1];
      if (group->rank() == 1) {
        add_to(w1, 0x1p-20);
      }
      for (int i = 0; i < 2; ++i) {
        expect_error(ErrorCode::kMismatch, AllOf(HasSubstr(kDrift), HasSubstr("'w1'")), step);
      }
      if (group->rank() == 1) {
        add_to(w1, -0x1p-20);
      }
      const std::int64_t n_steps = model.shard_step();
      step();
      EXPECT_EQ(n_steps, 3) << "steps that came to nothing don't count";
      EXPECT_EQ(gradients_of(model), values({static_cast<float>(n_shards + 1) / 2, 2, 3}))
          << "it goes on";
    });
  }
}

TEST(ParameterDrift, IsSaidOnceOfShardsOrNot) {
  const auto train = [](Model& model, int rank) {
    add_to(model.module()->w[0], rank == 2 ? 1 : 0);
    for (int step = 0; step < 3; ++step) {
      model.for_each_shard([&](int) { model(kFactors).backward(); });
    }
  };
  const std::string text = warnings_of(train, {.logical_ranks = 5});
  ASSERT_THAT(text, AllOf(HasSubstr(kDrift), HasSubstr("'w0'"), HasSubstr("on rank 2")));
  EXPECT_EQ(text.find(kDrift, text.find(kDrift) + 1), std::string::npos) << text;
  EXPECT_THAT(warnings_of(train, {.logical_ranks = 5, .parameter_drift = ParameterDrift::kIgnore}),
              Not(HasSubstr(kDrift)));
}

TEST(ParameterDrift, IsNoConcernOfRanksThatHaveAHookOrDontWantToKnow) {
  const auto drift = [](Model& model, int rank) {
    add_to(model.module()->w[2], rank);
    model(kFactors).backward();
  };
  EXPECT_THAT(warnings_of(drift, {.parameter_drift = ParameterDrift::kIgnore}),
              Not(HasSubstr(kDrift)));
  EXPECT_THAT(warnings_of([&](Model& model, int rank) {
                model.register_comm_hook(nullptr, allreduce_hook);
                drift(model, rank);
              }),
              Not(HasSubstr(kDrift)));
  EXPECT_THAT(warnings_of(drift), HasSubstr(kDrift)) << "else it is";
}

}  // namespace
}  // namespace unisono::testing
