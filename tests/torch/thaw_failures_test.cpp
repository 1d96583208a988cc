// Thawed parameters on which ranks disagree, and thawed parameters that can't be added.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;
using Gradients = std::vector<std::optional<float>>;

TEST(ThawFailures, OfValuesThatDifferIsFound) {
  on_two_frozen({.parameter_drift = ParameterDrift::kThrow}, [](Model& model, double rank) {
    const torch::NoGradGuard no_grad;
    model.module()->w[1].fill_(rank);
    const torch::AutoGradMode with_grad(true);
    model(Factors{1, 2, 3}).backward();
    thaw(model, 1);
    expect_error(ErrorCode::kMismatch,
                 AllOf(HasSubstr("no longer the same"), HasSubstr("'w1'")),
                 [&] { model(Factors{1, 2, 3}).backward(); });
  });
}

TEST(ThawFailures, UnderJoinOfARankThatWasDoneBeforeIsNamed) {
  on_two_frozen({}, [](Model& model, double rank) {
    expect_error(ErrorCode::kMismatch,
                 HasSubstr("parameter 'w1' is frozen on rank 0 and thawed on rank 1"),
                 [&] {
                   model.join([&] {
                     for (int step = 0; step < 1 + rank; ++step) {
                       if (step == 1) {
                         thaw(model, 1);
                       }
                       model(Factors{1, 2, 3}).backward();
                     }
                   });
                 });
  });
}

TEST(ThawFailures, OfOtherParametersIsAnErrorOnAllRanksAndCanBeMended) {
  run_ranks(2, [](const Group& group) {
    const Scalars scalars;
    scalars->w[0].set_requires_grad(false);
    scalars->w[1].set_requires_grad(false);
    Model model(scalars, group);
    const int rank = group->rank();
    model(Factors{1, 2, 3}).backward();
    thaw(model, rank == 0 ? 1 : 0);
    expect_error(ErrorCode::kMismatch,
                 AllOf(HasSubstr("the ranks have thawed different parameters"),
                       HasSubstr("set_requires_grad(true) on every rank"),
                       HasSubstr("parameter 'w0' is frozen on rank 0 and thawed on rank 1")),
                 [&] { model(Factors{1, 2, 3}); });
    thaw(model, rank == 0 ? 0 : 1);
    model.zero_grad();
    model(Factors{1.0 + rank, 2, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({1.5F, 2, 3}));
  });
}

TEST(ThawFailures, OnOneRankOnlyIsAnErrorThatNamesTheParameterOnBoth) {
  on_two_frozen({}, [](Model& model, double rank) {
    model(Factors{1, 2, 3}).backward();
    model(Factors{1, 2, 3}).backward();
    if (rank == 1) {
      thaw(model, 1);
    }
    expect_error(
        ErrorCode::kMismatch,
        AllOf(HasSubstr("ranks called all_reduce with different types, sizes and reductions"),
              HasSubstr(rank == 1 ? "this rank has thawed parameter 'w1'"
                                  : "this rank has frozen parameter 'w1'"),
              HasSubstr("set_requires_grad(true) on every rank")),
        [&] { model(Factors{1, 2, 3}).backward(); });
  });
}

TEST(ThawFailures, OnOneRankOnlyIsNamedWithManyBuckets) {
  run_ranks(2, [](const Group& group) {
    const ConvNet net = make_seeded_net();
    net->conv->weight.set_requires_grad(false);
    net->head->weight.set_requires_grad(false);
    DistributedDataParallel model(
        net, group, {.bucket_cap_mb = 0.002, .first_bucket_cap_mb = 0.001});
    const int rank = group->rank();
    const Sample sample = make_sample(0, rank, 4, torch::kFloat);
    loss_of(model, sample).backward();
    loss_of(model, sample).backward();
    EXPECT_GT(model.n_buckets(), 1);
    if (rank == 0) {
      net->head->weight.set_requires_grad(true);
    }
    // The group is closed before the last bucket is launched. That bucket then has another error.
    net->conv->bias.register_hook(
        [&](const torch::Tensor&) { EXPECT_THROW(group->barrier(), Error); });
    expect_error(ErrorCode::kMismatch,
                 HasSubstr(rank == 0 ? "this rank has thawed parameter 'head.weight'"
                                     : "this rank has frozen parameter 'conv.weight' and 1 more"),
                 [&] { loss_of(model, sample).backward(); });
  });
}

TEST(ThawFailures, WithinAStepIsRefused) {
  on_two_frozen({.weigh_samples = true}, [](Model& model, double rank) {
    const auto step = [&](bool thaws) {
      model.run_step(1, [&] {
        if (thaws) {
          thaw(model, 1);
        }
        model(Factors{1 + rank, 2 + 2 * rank, 3}).backward();
      });
    };
    expect_error(ErrorCode::kInvalidArgument,
                 HasSubstr("parameter 'w1' was thawed within a step; do it before run_step()"),
                 [&] { step(true); });
    step(false);
    EXPECT_EQ(gradients_of(model), values({1.5F, 3, 3}));
  });
  on_two_frozen({.logical_ranks = 4}, [](Model& model, double rank) {
    const auto step = [&](bool thaws) {
      model.for_each_shard([&](int shard) {
        if (thaws && shard == 2 * rank + 1) {
          thaw(model, 1);
        }
        model(Factors{1.0 + shard, 2, 3}).backward();
      });
    };
    expect_error(
        ErrorCode::kInvalidArgument,
        HasSubstr("parameter 'w1' was thawed within a step; do it before for_each_shard()"),
        [&] { step(true); });
    step(false);
    EXPECT_EQ(gradients_of(model), values({2.5F, 2, 3}));
  });
}

// Construction would have rejected this parameter if the parameter had not been frozen. After
// another freeze the training continues.
TEST(ThawFailures, OfATypeThatTheOptionsDoNotAllowIsRefused) {
  run_ranks(2, [](const Group& group) {
    const Scalars scalars;
    scalars->w[1].set_data(torch::ones({1}, torch::kHalf));
    scalars->w[1].set_requires_grad(false);
    Model model(scalars, group, {.weigh_samples = true});
    const auto step = [&] {
      model.run_step(1, [&] { model(Factors{1.0 + group->rank(), 0, 3}).backward(); });
    };
    step();
    thaw(model, 1);
    expect_error(
        ErrorCode::kInvalidArgument,
        AllOf(HasSubstr("with weigh_samples parameters must be f32 or f64"), HasSubstr("'w1'")),
        step);
    scalars->w[1].set_requires_grad(false);
    step();
    EXPECT_EQ(gradients_of(model), (Gradients{1.5F, std::nullopt, 3.0F}));
  });
}

}  // namespace
}  // namespace unisono::testing
