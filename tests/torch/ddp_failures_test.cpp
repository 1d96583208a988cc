// Backward passes that overlap with communication, and backward passes that fail midway.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/tensor.h"

#include "canonical.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Identity whose backward calls `action`.
struct CallInBackward : torch::autograd::Function<CallInBackward> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context,
                               const torch::Tensor& x,
                               std::int64_t action) {
    context->saved_data["action"] = action;
    return x.clone();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto address = context->saved_data["action"].toInt();
    // NOLINTNEXTLINE(performance-no-int-to-ptr): saved data holds numbers only
    (*reinterpret_cast<const std::function<void()>*>(address))();
    return {gradients[0], torch::Tensor()};
  }
};

torch::Tensor call_in_backward(const torch::Tensor& x, const std::function<void()>& action) {
  return CallInBackward::apply(x, reinterpret_cast<std::int64_t>(&action));
}

// w0 receives its gradient last, after the call of `before_w0`.
struct ChainImpl : torch::nn::Module {
  explicit ChainImpl(std::int64_t width)
      : w0(register_parameter("w0", torch::ones({width}))),
        w1(register_parameter("w1", torch::ones({width}))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return (call_in_backward(x * w0, before_w0) * w1).sum();
  }

  torch::Tensor w0;
  torch::Tensor w1;
  std::function<void()> before_w0 = [] {};
};

TORCH_MODULE(Chain);

TEST(DdpOverlap, TheFirstAllReduceEndsBeforeTheLastGradientExists) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    Chain chain(1000);
    DistributedDataParallel model(
        chain, group, {.bucket_cap_mb = 0.001, .first_bucket_cap_mb = 0.001});
    ASSERT_EQ(model.n_buckets(), 2);
    bool was_averaged = false;
    chain->before_w0 = [&] {
      EXPECT_FALSE(chain->w0.grad().defined());
      // Rank r's own gradient is r + 1. The operation is asynchronous, so the test waits up to a
      // deadline.
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!was_averaged && std::chrono::steady_clock::now() < end) {
        was_averaged = chain->w1.grad().eq(1.5).all().item<bool>();
      }
    };
    model(torch::full({1000}, group->rank() + 1.0)).backward();
    EXPECT_TRUE(was_averaged);
  });
}

TEST(DdpErrors, AnExceptionOnAllRanksEndsThePassAndTheNextIsRight) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    Chain chain(1000);
    DistributedDataParallel model(
        chain, group, {.bucket_cap_mb = 0.001, .first_bucket_cap_mb = 0.001});
    const torch::Tensor x = torch::full({1000}, group->rank() + 1.0);
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      chain->before_w0 = [] { throw std::runtime_error("out of luck"); };
      EXPECT_THROW(model(x).backward(), std::runtime_error);
      model.zero_grad();
      chain->before_w0 = [] {};
      model(x).backward();
      EXPECT_TRUE(chain->w0.grad().eq(2).all().item<bool>());
      EXPECT_TRUE(chain->w1.grad().eq(2).all().item<bool>());
    }
  });
}

TEST(DdpErrors, AnExceptionOnOneRankIsAnErrorOnTheOthersAndTheNextPassIsRight) {
  run_ranks(3, [](const std::shared_ptr<ProcessGroup>& group) {
    Chain chain(1000);
    DistributedDataParallel model(
        chain, group, {.bucket_cap_mb = 0.001, .first_bucket_cap_mb = 0.001});
    const torch::Tensor x = torch::full({1000}, group->rank() + 1.0);
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      if (group->rank() == 1) {
        chain->before_w0 = [] { throw std::runtime_error("out of luck"); };
        EXPECT_THROW(model(x).backward(), std::runtime_error);
        chain->before_w0 = [] {};
      } else {
        expect_error(ErrorCode::kMismatch, HasSubstr("another rank's backward"), [&] {
          model(x).backward();
        });
      }
      model.zero_grad();
      model(x).backward();
      EXPECT_TRUE(chain->w0.grad().eq(2).all().item<bool>());
    }
  });
}

// The gradients are averaged in memory without a graph.
TEST(DdpErrors, GradientsOfAveragedGradientsAreRefusedAndTrainingGoesOn) {
  on_two_ranks([](Model& model, double rank) {
    for (int step = 0; step < 2; ++step) {
      model.zero_grad();
      const torch::Tensor output = model(Factors{1 + rank, 2, 3}).square();
      expect_error(ErrorCode::kInvalidArgument,
                   AllOf(HasSubstr("[rank " + std::to_string(static_cast<int>(rank))),
                         HasSubstr("backward() was called with create_graph"),
                         HasSubstr("torch::autograd::grad()")),
                   [&] { output.backward({}, std::nullopt, /*create_graph=*/true); });
      model.zero_grad();
      model(Factors{1 + rank, 2, 3}).backward();
      EXPECT_EQ(gradients_of(model), values({1.5F, 2, 3}));
    }
  });
}

TEST(DdpErrors, APenaltyOnGradientsOfInputsIsAveraged) {
  const auto loss_of = [](auto& model, double rank) {
    const torch::Tensor x = torch::full({3, 2}, 0.5 + rank, torch::requires_grad());
    const torch::Tensor output = model->forward(x).square().sum();
    const torch::Tensor gradient = torch::autograd::grad({output}, {x}, {}, true, true)[0];
    return output + gradient.square().sum();
  };
  run_ranks(2, [&](const std::shared_ptr<ProcessGroup>& group) {
    torch::nn::Sequential net(torch::nn::Linear(2, 4), torch::nn::Tanh(), torch::nn::Linear(4, 1));
    DistributedDataParallel model(net, group);
    torch::nn::Sequential alone =
        std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone());
    accumulate_shards(alone->parameters(), 2, [&](int shard) { loss_of(alone, shard).backward(); });
    auto* const wrapped = &model;
    loss_of(wrapped, group->rank()).backward();
    EXPECT_TRUE(
        is_bit_equal(clone_gradients(model.parameters()), clone_gradients(alone->parameters())));
  });
}

TEST(DdpErrors, AGradientOfAnotherTypeIsNamed) {
  on_two_ranks([](Model& model, double /*rank*/) {
    model.module()->w[1].mutable_grad() = torch::zeros({1}, torch::kDouble);
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("'w1'"), HasSubstr("is f64[1], but the parameter was f32[1]")),
                 [&] { model(Factors{1, 2, 3}).backward(); });
  });
}

TEST(DdpErrors, AnErrorOfCommunicationLeavesBackwardAsItIs) {
  run_ranks(2, [](const std::shared_ptr<ProcessGroup>& group) {
    const Scalars module;
    Model model(module, group);
    const torch::Tensor output = model(Factors{1, 2, 3});
    if (group->rank() == 0) {
      const at::Tensor wrong = torch::zeros({77});
      EXPECT_THROW(all_reduce(*group, wrong), Error);
    } else {
      expect_error(ErrorCode::kMismatch, HasSubstr("77"), [&] { output.backward(); });
      EXPECT_THROW(model(Factors{1, 2, 3}).backward(), Error) << "and every later call says so";
    }
  });
}

}  // namespace
}  // namespace unisono::testing
