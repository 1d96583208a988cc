// Hooks that reduce a bucket's gradients with their own algorithm.

#include "unisono/torch/ddp/comm_hooks/comm_hooks.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/tensor.h"

#include "canonical.h"
#include "models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;
using Net = DistributedDataParallel<ConvNet>;

// Limits that give several buckets.
const DistributedDataParallelOptions kSmallBuckets{.bucket_cap_mb = 0.002,
                                                   .first_bucket_cap_mb = 0.001};

Net make_net(const Group& group) {
  return Net(make_seeded_net(), group, kSmallBuckets);
}

std::vector<at::Tensor> gradients_after_backward(Net& net, const Group& group, int step) {
  net.zero_grad();
  loss_of(net, make_sample(step, group->rank(), 8, torch::kFloat)).backward();
  return clone_gradients(net.parameters());
}

TEST(CommHook, TheDefaultsOwnHookGivesTheSameBits) {
  run_ranks(3, [](const Group& group) {
    Net plain = make_net(group);
    Net hooked = make_net(group);
    hooked.register_comm_hook(nullptr, allreduce_hook);
    for (int step = 0; step < 3; ++step) {
      EXPECT_TRUE(is_bit_equal(gradients_after_backward(plain, group, step),
                               gradients_after_backward(hooked, group, step)));
    }
  });
}

TEST(CommHook, SeesTheBucketsInOrderWithTheirGradientsAndParameters) {
  run_ranks(2, [](const Group& group) {
    Net net = make_net(group);
    std::vector<std::size_t> indices;
    std::size_t n_parameters = 0;
    net.register_comm_hook(group, [&](ProcessGroup& state, const GradBucket& bucket) {
      EXPECT_EQ(bucket.is_last(), bucket.index() + 1 == net.n_buckets());
      EXPECT_EQ(bucket.gradients().size(), bucket.parameters().size());
      std::int64_t n_elems = 0;
      for (std::size_t i = 0; i < bucket.gradients().size(); ++i) {
        EXPECT_EQ(bucket.gradients()[i].sizes(), bucket.parameters()[i].sizes());
        n_elems += bucket.gradients()[i].numel();
      }
      EXPECT_LE(n_elems, bucket.buffer().numel());
      indices.push_back(bucket.index());
      n_parameters += bucket.parameters().size();
      return allreduce_hook(state, bucket);
    });
    (void)gradients_after_backward(net, group, 0);
    EXPECT_EQ(net.n_buckets(), 2);
    EXPECT_THAT(indices, ElementsAre(0, 1));
    EXPECT_EQ(n_parameters, net.parameters().size());
  });
}

TEST(CommHook, WhatIsLeftToDoRunsInTheOrderOfTheBuckets) {
  run_ranks(2, [](const Group& group) {
    Net net = make_net(group);
    std::vector<std::size_t> steps;
    net.register_comm_hook(group, [&](ProcessGroup& state, const GradBucket& bucket) {
      const auto finish = [&steps, bucket] {
        steps.push_back(100 + bucket.index());
        bucket.buffer().mul_(2);
        return BucketWork();
      };
      const auto again = [&steps, &state, bucket, finish] {
        steps.push_back(bucket.index());
        return BucketWork{.work = allreduce_hook(state, bucket).work, .then = finish};
      };
      return BucketWork{.work = allreduce_hook(state, bucket).work, .then = again};
    });
    Net plain = make_net(group);
    const std::vector<at::Tensor> doubled = gradients_after_backward(net, group, 0);
    const std::vector<at::Tensor> once = gradients_after_backward(plain, group, 0);
    EXPECT_THAT(steps, ElementsAre(0, 1, 100, 101));
    for (std::size_t i = 0; i < once.size(); ++i) {
      EXPECT_TRUE(torch::equal(doubled[i], once[i] * 2));
    }
  });
}

TEST(CommHook, SixteenBitsAreRoundedMeansOfRoundedGradients) {
  run_ranks(3, [](const Group& group) {
    for (const auto& [hook, type] : {std::pair(&fp16_compress_hook, torch::kHalf),
                                     std::pair(&bf16_compress_hook, torch::kBFloat16)}) {
      Net net = make_net(group);
      net.register_comm_hook(nullptr, hook);
      const std::vector<at::Tensor> gradients = gradients_after_backward(net, group, 0);
      std::vector<std::vector<at::Tensor>> of_ranks(gradients.size());
      for (int rank = 0; rank < group->world_size(); ++rank) {
        ConvNet local = clone_of(net.module());
        loss_of(local, make_sample(0, rank, 8, torch::kFloat)).backward();
        for (std::size_t i = 0; i < gradients.size(); ++i) {
          of_ranks[i].push_back(local->parameters()[i].grad().to(type).to(torch::kFloat));
        }
      }
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        const at::Tensor expected = canonical_mean(of_ranks[i]).to(type).to(torch::kFloat);
        EXPECT_TRUE(torch::equal(gradients[i], expected)) << i;
      }
    }
  });
}

TEST(CommHook, IsRegisteredOnceBeforeTheFirstPass) {
  on_two_ranks([](Model& model, double /*rank*/) {
    model.register_comm_hook(nullptr, allreduce_hook);
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("there is a hook already"), [&] {
      model.register_comm_hook(nullptr, fp16_compress_hook);
    });
  });
  on_two_ranks([](Model& model, double /*rank*/) {
    model(Factors{1, 2, 3}).backward();
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("before the first"), [&] {
      model.register_comm_hook(nullptr, allreduce_hook);
    });
  });
}

TEST(CommHook, OneThatThrowsOnOneRankIsAnErrorOnAll) {
  on_two_ranks([](Model& model, double rank) {
    model.register_comm_hook(nullptr, [rank](ProcessGroup& group, const GradBucket& bucket) {
      if (rank == 1) {
        throw std::runtime_error("no luck");
      }
      return allreduce_hook(group, bucket);
    });
    if (rank == 1) {
      EXPECT_THROW(model(Factors{1, 2, 3}).backward(), std::runtime_error);
    } else {
      expect_error(ErrorCode::kClosed, HasSubstr("the communication hook failed: no luck"), [&] {
        model(Factors{1, 2, 3}).backward();
      });
    }
  });
}

TEST(CommHook, NothingIsLeftToDoOfAPassThatARankGivesUp) {
  on_two_ranks([](Model& model, double rank) {
    int n_finished = 0;
    model.register_comm_hook(nullptr, [&](ProcessGroup& group, const GradBucket& bucket) {
      return BucketWork{.work = allreduce_hook(group, bucket).work, .then = [&] {
                          ++n_finished;
                          return BucketWork();
                        }};
    });
    const at::Tensor w0 = model.module()->w[0];
    if (rank == 1) {
      const unsigned trap = w0.register_hook(
          [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("no luck"); });
      EXPECT_THROW(model(Factors{1, 2, 3}).backward(), std::runtime_error);
      w0.remove_hook(trap);
    } else {
      expect_error(ErrorCode::kMismatch, HasSubstr("another rank's backward"), [&] {
        model(Factors{1, 2, 3}).backward();
      });
    }
    model.zero_grad();
    model(Factors{rank + 1, 2, 3}).backward();
    EXPECT_EQ(n_finished, 1);
    EXPECT_EQ(gradients_of(model), values({1.5, 2, 3}));
  });
}

}  // namespace
}  // namespace unisono::testing
