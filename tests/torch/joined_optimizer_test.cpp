// An optimizer that divides the state among ranks, under join().

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/optim/zero_redundancy_optimizer.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "scalars.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using test::throws_error;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;
using Net = DistributedDataParallel<ConvNet>;
using Adam = torch::optim::Adam;
using DividedAdam = optim::ZeroRedundancyOptimizer<Adam>;

const torch::optim::AdamOptions kAdam(0.01);

// Number of batches by rank. Each rank has a share of the parameters to update, and one rank
// finishes before the others.
constexpr std::array<int, 3> kBatchesOfRanks{3, 5, 0};

int n_batches(int rank) {
  return kBatchesOfRanks.at(static_cast<std::size_t>(rank));
}

void plain_step(Net& net, torch::optim::Optimizer& optimizer, int rank, int step) {
  optimizer.zero_grad();
  loss_of(net, make_sample(step, rank, 4, torch::kFloat)).backward();
  optimizer.step();
}

void train_step(Net& net, torch::optim::Optimizer& optimizer, int rank, int step) {
  // Changes the rate as a schedule does. The schedule does not advance on ranks that have finished.
  optimizer.param_groups().front().options().set_lr(0.01 * (step + 1));
  optimizer.zero_grad();
  {
    const auto guard = net.no_sync();
    loss_of(net, make_sample(step, rank, 2, torch::kFloat)).backward();
  }
  loss_of(net, make_sample(step, rank + 3, 4, torch::kFloat)).backward();
  optimizer.step();
}

TEST(JoinedOptimizer, HasTheBitsOfAWholeOne) {
  for (const bool by_all : {true, false}) {
    run_ranks(3, [&](const Group& group) {
      const int rank = group->rank();
      const JoinOptions options{.divide_by_initial_world_size = by_all};
      Net net(make_seeded_net(), group);
      Net reference(make_seeded_net(), group);
      DividedAdam divided(group, net.parameters(), kAdam);
      divided.join_with(net);
      Adam whole(reference.parameters(), kAdam);
      const auto train = [&](Net& model, torch::optim::Optimizer& optimizer) {
        return model.join(
            [&] {
              for (int step = 0; step < n_batches(rank); ++step) {
                train_step(model, optimizer, rank, step);
              }
            },
            options);
      };
      EXPECT_EQ(train(net, divided), 1);
      train(reference, whole);
      EXPECT_TRUE(is_bit_equal(net.parameters(), reference.parameters()));
      EXPECT_FALSE(is_bit_equal(net.parameters(), make_seeded_net()->parameters()));
    });
  }
}

// The states of a whole optimizer, which each rank has, fall behind on a rank that has finished.
TEST(JoinedOptimizer, KeepsAllOfItsStateForTheNextEpoch) {
  std::vector<at::Tensor> expected;
  run_ranks(1, [&](const Group&) {
    ConvNet net = make_seeded_net();
    Adam optimizer(net->parameters(), kAdam);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int step = 0; step < 5; ++step) {
        accumulate_shards(net->parameters(), 3, [&](int shard) {
          if (step < n_batches(shard)) {
            loss_of(net, make_sample(step, shard, 4, torch::kFloat)).backward();
          } else {
            for (const at::Tensor& parameter : net->parameters()) {
              parameter.mutable_grad() = torch::zeros_like(parameter);
            }
          }
        });
        optimizer.step();
      }
    }
    expected = clone_all(net->parameters());
  });
  run_ranks(3, [&](const Group& group) {
    Net net(make_seeded_net(), group);
    DividedAdam optimizer(group, net.parameters(), kAdam);
    optimizer.join_with(net);
    for (int epoch = 0; epoch < 2; ++epoch) {
      net.join([&] {
        for (int step = 0; step < n_batches(group->rank()); ++step) {
          plain_step(net, optimizer, group->rank(), step);
        }
      });
    }
    EXPECT_TRUE(is_bit_equal(net.parameters(), expected));
    // Outside of join() all ranks make the step.
    plain_step(net, optimizer, group->rank(), 0);
    net.check_consistent();
    EXPECT_FALSE(is_bit_equal(net.parameters(), expected));
  });
}

TEST(JoinedOptimizer, OfEachOfTwoModels) {
  run_ranks(3, [&](const Group& group) {
    const int rank = group->rank();
    Net first(make_seeded_net(), group);
    Net second(make_seeded_net(), group);
    Net reference(make_seeded_net(), group);
    DividedAdam of_first(group, first.parameters(), kAdam);
    optim::ZeroRedundancyOptimizer<torch::optim::SGD> of_second(
        group, second.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    of_first.join_with(first);
    of_second.join_with(second);
    const auto loop = [&] {
      for (int step = 0; step < n_batches(rank); ++step) {
        plain_step(first, of_first, rank, step);
        plain_step(second, of_second, rank, step);
      }
    };
    join({}, loop, first, second);
    torch::optim::SGD whole(reference.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    reference.join([&] {
      for (int step = 0; step < n_batches(rank); ++step) {
        plain_step(reference, whole, rank, step);
      }
    });
    EXPECT_TRUE(is_bit_equal(second.parameters(), reference.parameters()));
    first.check_consistent();
    EXPECT_FALSE(is_bit_equal(first.parameters(), second.parameters()));
  });
}

// Ranks that have finished also omit the step.
TEST(JoinedOptimizer, LeavesOutAStepWithAnInfinity) {
  run_ranks(2, [&](const Group& group) {
    DistributedDataParallel<Scalars> model(
        Scalars(), group, {.non_finite_gradients = NonFiniteGradients::kSkip});
    optim::ZeroRedundancyOptimizer<torch::optim::SGD> optimizer(
        group, model.parameters(), torch::optim::SGDOptions(0.5));
    optimizer.join_with(model);
    model.join([&] {
      for (int step = 0; step < (group->rank() == 0 ? 3 : 0); ++step) {
        optimizer.zero_grad();
        model(Factors{1, step == 1 ? std::numeric_limits<double>::infinity() : 2, 3}).backward();
        optimizer.step();
      }
    });
    // Two steps with half the gradients at a rate of one half.
    EXPECT_EQ(model.module()->w[0].item<float>(), 0.5F);
    EXPECT_EQ(model.module()->w[1].item<float>(), 0.0F);
    EXPECT_EQ(model.module()->w[2].item<float>(), -0.5F);
  });
}

TEST(JoinedOptimizer, EitherMayGoFirst) {
  run_ranks(2, [&](const Group& group) {
    auto net = std::make_unique<Net>(make_seeded_net(), group);
    const auto step_alone = [&](DividedAdam& optimizer, int rank) {
      for (int step = 0; step < rank; ++step) {
        train_step(*net, optimizer, rank, step);
      }
    };
    {
      DividedAdam optimizer(group, net->parameters(), kAdam);
      optimizer.join_with(*net);
    }
    DividedAdam next(group, net->parameters(), kAdam);
    next.join_with(*net);
    net->join([&] { step_alone(next, group->rank()); });
    net->check_consistent();
    net.reset();
    next.step();
  });
}

TEST(JoinedOptimizer, WrongUseIsNamed) {
  run_ranks(1, [&](const Group& group) {
    Net net(make_seeded_net(), group);
    Net other(make_seeded_net(), group);
    DividedAdam optimizer(group, net.parameters(), kAdam);
    DividedAdam second(group, net.parameters(), kAdam);
    DividedAdam overlapped(group, other.parameters(), kAdam);
    optimizer.join_with(net);
    overlapped.overlap_with(other);
    EXPECT_THAT([&] { optimizer.join_with(net); },
                throws_error(ErrorCode::kInvalidArgument, "is called after join_with()"));
    EXPECT_THAT([&] { overlapped.join_with(other); },
                throws_error(ErrorCode::kInvalidArgument, "is called after overlap_with()"));
    EXPECT_THAT([&] { second.join_with(net); },
                throws_error(ErrorCode::kInvalidArgument, "is tied to this model already"));
    EXPECT_THAT([&] { join({}, [] {}, net, other); },
                throws_error(ErrorCode::kInvalidArgument, "leave overlap_with() out"));
    net.join([] {});
    torch::nn::Embedding words(torch::nn::EmbeddingOptions(4, 2).sparse(true));
    DistributedDataParallel<torch::nn::Embedding> text(words, group);
    optim::ZeroRedundancyOptimizer<torch::optim::SGD> of_text(
        group, text.parameters(), torch::optim::SGDOptions(0.1));
    EXPECT_THAT([&] { of_text.join_with(text); },
                throws_error(ErrorCode::kInvalidArgument, "sparse(false)"));
  });
}

TEST(JoinedOptimizer, OneThatIsTiedOnSomeRanksOnlyIsNamed) {
  run_ranks(2, [&](const Group& group) {
    Net net(make_seeded_net(), group);
    DividedAdam optimizer(group, net.parameters(), kAdam);
    if (group->rank() == 0) {
      optimizer.join_with(net);
    }
    const auto loop = [&] {
      if (group->rank() == 0) {
        train_step(net, optimizer, 0, 0);
      }
    };
    EXPECT_THAT(
        [&] { net.join(loop); },
        throws_error(group->rank() == 1 ? ErrorCode::kInvalidArgument : ErrorCode::kPeerLost,
                     group->rank() == 1 ? "call join_with() on every rank" : "rank 1"));
  });
}

}  // namespace
}  // namespace unisono::testing
