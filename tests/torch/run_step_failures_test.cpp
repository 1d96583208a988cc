// Failed steps of ranks with different numbers of samples, and their error messages.

#include <cmath>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

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
using Group = std::shared_ptr<ProcessGroup>;

TEST(RunStep, ARankThatThrowsEndsTheStepOnAll) {
  for (const bool is_late : {false, true}) {
    run_ranks(3, [&](const Group& group) {
      Model model(Scalars(), group, {.weigh_samples = true});
      const int rank = group->rank();
      const auto step = [&] {
        return model.run_step(rank == 2 ? 0 : 1 + rank, [&] {
          model(Factors{1.0 + rank, 2, 3}).backward();
          if (rank == 0 && is_late) {
            throw std::runtime_error("no luck");
          }
        });
      };
      if (is_late) {
        if (rank == 0) {
          EXPECT_THROW(step(), std::runtime_error);
        } else {
          EXPECT_TRUE(step());
        }
      } else if (rank == 0) {
        EXPECT_THROW(model.run_step(1, [] { throw std::runtime_error("no luck"); }),
                     std::runtime_error);
      } else {
        expect_error(ErrorCode::kMismatch, HasSubstr("another rank's backward"), step);
      }
      EXPECT_TRUE(model.run_step(rank == 2 ? 0 : 1 + rank,
                                 [&] { model(Factors{rank == 0 ? 1.0 : 4.0, 2, 3}).backward(); }));
      EXPECT_EQ(gradients_of(model), values({3, 2, 3}));
    });
  }
}

TEST(RunStep, AnInfinityIsNamedOnRanksWithoutSamplesToo) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(),
                group,
                {.non_finite_gradients = NonFiniteGradients::kThrow, .weigh_samples = true});
    const int rank = group->rank();
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("rank 1 in 'w1'"), [&] {
      model.run_step(rank, [&] { model(Factors{1, HUGE_VAL, 1}).backward(); });
    });
    EXPECT_TRUE(model.run_step(rank, [&] { model(Factors{1, 2, 3}).backward(); }));
    EXPECT_EQ(gradients_of(model), values({1, 2, 3}));
  });
}

// A rank without data detects in this step that its parameters differ.
TEST(RunStep, DriftIsSeenByARankWithoutSamples) {
  run_ranks(2, [](const Group& group) {
    Model model(
        Scalars(), group, {.weigh_samples = true, .parameter_drift = ParameterDrift::kThrow});
    if (group->rank() == 0) {
      const torch::NoGradGuard no_grad;
      model.module()->w[1].fill_(7);
    }
    expect_error(ErrorCode::kMismatch, HasSubstr("'w1'"), [&] {
      model.run_step(group->rank(), [&] { model(Factors{1, 2, 3}).backward(); });
    });
  });
}

TEST(RunStep, WrongUseIsNamed) {
  const auto pass = [](Model& model) { model(Factors{1, 2, 3}).backward(); };
  on_two_ranks({.weigh_samples = true}, [&](Model& model, double) {
    const auto refused = [](const std::string& text, const auto& call) {
      expect_error(ErrorCode::kInvalidArgument, HasSubstr(text), call);
    };
    refused("run_step() only", [&] { pass(model); });
    refused("no join()", [&] { model.join([] {}); });
    refused("a hook would average", [&] { model.register_comm_hook(nullptr, allreduce_hook); });
    refused("n_samples is -1", [&] { model.run_step(-1, [] {}); });
    refused("n_samples is 8388608", [&] { model.run_step(std::int64_t{1} << 23, [] {}); });
    refused("logical_ranks is not set", [&] { model.for_each_shard([](int) {}); });
    refused("gradients are off", [&] {
      const torch::NoGradGuard no_grad;
      model.run_step(1, [] {});
    });
    refused("a rank that has none calls", [&] { model.run_step(1, [] {}); });
    refused("a rank that has none calls", [&] {
      model.run_step(1, [&] {
        const auto guard = model.no_sync();
        pass(model);
      });
    });
    refused("calls backward() again", [&] {
      model.run_step(1, [&] {
        pass(model);
        pass(model);
      });
    });
    refused("called within run_step()",
            [&] { model.run_step(1, [&] { model.run_step(1, [] {}); }); });
    refused("in run_step() only", [&] { (model.module()->w[0] * 2).backward(); });
    EXPECT_TRUE(model.run_step(1, [&] { pass(model); })) << "all that can be gone on from";
    EXPECT_EQ(gradients_of(model), values({1, 2, 3}));
  });
}

TEST(RunStep, WrongModelsAreNamed) {
  on_two_ranks({}, [](Model& model, double) {
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("weigh_samples is not set"), [&] {
      model.run_step(1, [] {});
    });
  });
  run_ranks(2, [](const Group& group) {
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("both set"), [&] {
      Model(Scalars(), group, {.weigh_samples = true, .logical_ranks = 2});
    });
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("'weight' is bf16[2, 2]"), HasSubstr("with weigh_samples")),
                 [&] {
                   torch::nn::Linear layer(2, 2);
                   layer->to(torch::kBFloat16);
                   DistributedDataParallel<torch::nn::Linear>(
                       layer, group, {.weigh_samples = true});
                 });
    expect_error(ErrorCode::kMismatch, HasSubstr("option weigh_samples"), [&] {
      Model(Scalars(), group, {.weigh_samples = group->rank() == 1});
    });
  });
}

}  // namespace
}  // namespace unisono::testing
