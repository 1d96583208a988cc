// Ranks with different numbers of batches.

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
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

// Indexed by rank.
constexpr std::array<int, 3> kBatches{2, 4, 0};

int n_active(int step) {
  int n = 0;
  for (const int batches : kBatches) {
    n += batches > step ? 1 : 0;
  }
  return n;
}

// Rank r's gradients are r + 1, 2 and 3. The gradients of a rank that has finished are zero.
void train_step(Model& model, int rank, torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  model(Factors{rank + 1.0, 2, 3}).backward();
  optimizer.step();
}

TEST(Join, RanksThatAreDoneAddZerosAndEndWithTheLastValues) {
  for (const bool by_all : {true, false}) {
    for (const bool find_unused : {false, true}) {
      run_ranks(3, [&](const Group& group) {
        Model model(Scalars(), group, {.find_unused_parameters = find_unused});
        torch::optim::SGD optimizer(model.parameters(), 0.01);
        const int rank = group->rank();
        const auto loop = [&] {
          for (int step = 0; step < kBatches[static_cast<std::size_t>(rank)]; ++step) {
            train_step(model, rank, optimizer);
            const float share = static_cast<float>(n_active(step)) /
                                static_cast<float>(by_all ? 3 : n_active(step));
            EXPECT_FLOAT_EQ(*gradients_of(model)[1], 2 * share) << "step " << step;
          }
        };
        EXPECT_EQ(model.join(loop, {.divide_by_initial_world_size = by_all}), 1);
        double expected = 1;
        for (int step = 0; step < 4; ++step) {
          expected -= 0.01 * 2 * n_active(step) / (by_all ? 3 : n_active(step));
        }
        EXPECT_NEAR(model.module()->w[1].item<double>(), expected, 1e-6);
        model.check_consistent();
        train_step(model, rank, optimizer);
        EXPECT_FLOAT_EQ(*gradients_of(model)[1], 2) << "passes after it are as before";
        model.check_consistent();
      });
    }
  }
}

struct NormImpl : torch::nn::Module {
  NormImpl() : norm(register_module("norm", torch::nn::BatchNorm1d(2))) {}

  torch::Tensor forward(const torch::Tensor& x) { return norm(x); }

  torch::nn::BatchNorm1d norm{nullptr};
};

TORCH_MODULE(Norm);

// Rank 0, from which the others usually receive buffers, finishes first.
TEST(Join, BuffersAreThoseOfARankThatStillTrains) {
  run_ranks(2, [](const Group& group) {
    DistributedDataParallel<Norm> model(Norm(), group);
    const int n_batches = group->rank() == 0 ? 0 : 3;
    model.join([&] {
      for (int step = 0; step < n_batches; ++step) {
        model(torch::full({4, 2}, 10.0) + torch::randn({4, 2})).sum().backward();
      }
    });
    const at::Tensor mean = model.module()->norm->running_mean;
    EXPECT_GT(mean[0].item<double>(), 2) << "three tenths of the way from 0 to 10";
    EXPECT_EQ(model.module()->norm->num_batches_tracked.item<std::int64_t>(), 3);
  });
}

TEST(Join, SeveralModelsAndPassesThatAreNotSynchronized) {
  run_ranks(2, [](const Group& group) {
    Model first(Scalars(), group);
    Model second(Scalars(), group);
    const double rank = group->rank();
    const auto loop = [&] {
      for (int step = 0; step < (group->rank() == 0 ? 1 : 3); ++step) {
        first.zero_grad();
        first(Factors{rank + 1, 2, 3}).backward();
        second.zero_grad();
        {
          const auto guard = second.no_sync();
          second(Factors{1, 1, 1}).backward();
        }
        EXPECT_EQ(gradients_of(second), values({1, 1, 1}));
        EXPECT_EQ(gradients_of(first), step == 0 ? values({1.5, 2, 3}) : values({1, 1, 1.5}));
      }
    };
    join({}, loop, first, second);
  });
}

TEST(Join, CanThrowOnAllRanksWhereOneIsDone) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group);
    const auto loop = [&] {
      for (int step = 0; step < 2 - group->rank(); ++step) {
        model(Factors{1, 2, 3}).backward();
      }
    };
    expect_error(ErrorCode::kMismatch,
                 AllOf(HasSubstr("rank 1 has no batches left"), HasSubstr("rank 0 has")),
                 [&] { model.join(loop, {.throw_on_early_termination = true}); });
  });
}

// The first pass is aborted, after which the ranks agree on new buckets.
TEST(Join, ARankThatIsDoneKnowsThatAPassWasGivenUp) {
  run_ranks(3, [](const Group& group) {
    Model model(Scalars(), group);
    const int rank = group->rank();
    const auto loop = [&] {
      if (rank == 1) {
        const at::Tensor w0 = model.module()->w[0];
        const unsigned trap = w0.register_hook(
            [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no luck"); });
        EXPECT_THROW(model(Factors{1, 2, 3}).backward(), std::runtime_error);
        w0.remove_hook(trap);
      } else {
        expect_error(ErrorCode::kMismatch, HasSubstr("another rank's backward"), [&] {
          model(Factors{1, 2, 3}).backward();
        });
      }
      for (int step = 0; step < 2; ++step) {
        model.zero_grad();
        model(Factors{3, 6, 9}).backward();
        EXPECT_EQ(gradients_of(model), values({2, 4, 6}));
      }
    };
    model.join([&] {
      if (rank != 0) {
        loop();
      }
    });
  });
}

TEST(Join, PassesAfterAnExceptionAreAsBefore) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group);
    const JoinOptions by_active{.divide_by_initial_world_size = false};
    if (group->rank() == 1) {
      model.join([] {}, by_active);
      return;
    }
    const auto loop = [&] {
      model(Factors{1, 2, 3}).backward();
      throw std::runtime_error("no luck");
    };
    EXPECT_THROW(model.join(loop, by_active), std::runtime_error);
    // Rank 1 still waits in its join(), and takes part in the later pass that rank 0 makes outside
    // of join().
    expect_error(ErrorCode::kMismatch, HasSubstr("rank 1 has no batches left"), [&] {
      model.join([&] { model(Factors{1, 2, 3}); }, {.throw_on_early_termination = true});
    });
    model.zero_grad();
    model(Factors{1, 2, 3}).backward();
    EXPECT_EQ(gradients_of(model), values({0.5, 1, 1.5}));
    model.join([] {});
  });
}

TEST(Join, RanksThatAreDoneKnowWhichGradientsOthersLack) {
  run_ranks(3, [](const Group& group) {
    Model model(Scalars(), group);
    const int n_steps = group->rank() == 2 ? 1 : 3;
    const auto loop = [&] {
      for (int step = 0; step < n_steps; ++step) {
        const bool lacks = step == 1 && group->rank() == 1;
        model(Factors{1, lacks ? 0.0 : 2.0, 3}).backward();
      }
    };
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("for 'w1' on rank 1 in pass 2, but"), [&] {
      model.join(loop);
    });
  });
}

TEST(Join, IsWhatTheErrorOfUnevenInputsNames) {
  run_ranks(2, [](const Group& group) {
    Model model(Scalars(), group);
    model(Factors{1, 2, 3}).backward();
    if (group->rank() == 1) {
      group->destroy();
      return;
    }
    expect_error(ErrorCode::kPeerLost, AllOf(HasSubstr("rank 1"), HasSubstr("join()")), [&] {
      model(Factors{1, 2, 3}).backward();
    });
  });
}

}  // namespace
}  // namespace unisono::testing
