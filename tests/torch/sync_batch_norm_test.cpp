// Batch normalization over the batches of several ranks.

#include "unisono/torch/nn/sync_batch_norm.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/tensor/hash.h"
#include "unisono/torch/tensor/tensor.h"

#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using nn::SyncBatchNorm;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::BatchNormOptions;
using Group = std::shared_ptr<ProcessGroup>;

// Indexed by rank.
constexpr std::array<std::int64_t, 3> kBatchSizes{4, 0, 3};

at::Tensor joined_input(torch::Dtype dtype) {
  return (torch::arange(1, 7 * 5 * 2 * 3 + 1, torch::kDouble) * 0.7)
      .sin()
      .add(3)
      .mul(2)
      .view({7, 5, 2, 3})
      .to(dtype);
}

at::Tensor share_of(const at::Tensor& joined, int rank) {
  std::int64_t start = 0;
  for (int i = 0; i < rank; ++i) {
    start += kBatchSizes[static_cast<std::size_t>(i)];
  }
  return joined.narrow(0, start, kBatchSizes[static_cast<std::size_t>(rank)]);
}

template <class Norm>
void set_affine(Norm& norm) {
  const torch::NoGradGuard no_grad;
  norm->weight.copy_(torch::arange(1, 6) * 0.5);
  norm->bias.copy_(torch::arange(1, 6) * 0.1);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, double tolerance) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  if (expected.numel() > 0) {
    EXPECT_LE((actual - expected).abs().max().item<double>(),
              tolerance * expected.abs().max().item<double>());
  }
}

TEST(SyncBatchNorm, EqualsBatchNormOnTheJoinedBatch) {
  for (const auto& [dtype, tolerance] :
       {std::pair(torch::kDouble, 1e-12), std::pair(torch::kFloat, 1e-5)}) {
    for (const auto& momentum : {std::optional<double>(0.1), std::optional<double>()}) {
      const auto options = BatchNormOptions(5).momentum(momentum);
      run_ranks(3, [&](const Group& group) {
        SyncBatchNorm ours(options, group);
        torch::nn::BatchNorm2d theirs(options);
        ours->to(dtype);
        theirs->to(dtype);
        set_affine(ours);
        set_affine(theirs);
        for (int step = 0; step < 2; ++step) {
          const at::Tensor joined = joined_input(dtype).mul(step + 1).set_requires_grad(true);
          const at::Tensor mine =
              share_of(joined.detach(), group->rank()).clone().set_requires_grad(true);
          const at::Tensor factors = joined.detach().cos();
          theirs->zero_grad();
          ours->zero_grad();
          const at::Tensor expected = theirs(joined);
          (expected * factors).sum().backward();
          const at::Tensor actual = ours(mine);
          (actual * share_of(factors, group->rank())).sum().backward();
          expect_close(actual, share_of(expected, group->rank()), tolerance);
          expect_close(mine.grad(), share_of(joined.grad(), group->rank()), tolerance);
          at::Tensor sums = torch::cat({ours->weight.grad(), ours->bias.grad()});
          all_reduce(*group, sums);
          expect_close(sums, torch::cat({theirs->weight.grad(), theirs->bias.grad()}), tolerance);
        }
        expect_close(ours->running_mean, theirs->running_mean, tolerance);
        expect_close(ours->running_var, theirs->running_var, tolerance);
        EXPECT_EQ(ours->num_batches_tracked.item<std::int64_t>(), 2);
        check_consistent(*group, {{.name = "mean", .tensor = ours->running_mean}}, "test");
        ours->eval();
        theirs->eval();
        expect_close(ours(joined_input(dtype)), theirs(joined_input(dtype)), tolerance);
      });
    }
  }
}

// The mean of these inputs is not representable in 16 bits.
TEST(SyncBatchNorm, SixteenBitInputsAreNormalizedIn32Bits) {
  for (const auto& [dtype, epsilon] :
       {std::pair(torch::kBFloat16, 1.0 / 256), std::pair(torch::kHalf, 1.0 / 2048)}) {
    run_ranks(3, [&](const Group& group) {
      SyncBatchNorm ours(BatchNormOptions(5), group);
      torch::nn::BatchNorm2d theirs(BatchNormOptions(5));
      set_affine(ours);
      set_affine(theirs);
      const at::Tensor inputs = joined_input(torch::kFloat).add(30).to(dtype);
      const at::Tensor joined = inputs.to(torch::kFloat).set_requires_grad(true);
      const at::Tensor mine = share_of(inputs, group->rank()).clone().set_requires_grad(true);
      const at::Tensor factors = inputs.cos();
      const at::Tensor expected = theirs(joined);
      (expected * factors).sum().backward();
      const at::Tensor actual = ours(mine);
      EXPECT_EQ(actual.scalar_type(), dtype);
      (actual * share_of(factors, group->rank())).sum().backward();
      EXPECT_EQ(mine.grad().scalar_type(), dtype);
      expect_close(actual.to(torch::kFloat), share_of(expected, group->rank()), epsilon);
      expect_close(mine.grad().to(torch::kFloat), share_of(joined.grad(), group->rank()), epsilon);
    });
  }
}

TEST(SyncBatchNorm, NeedsNeitherWeightsNorRunningStatistics) {
  run_ranks(2, [](const Group& group) {
    SyncBatchNorm norm(BatchNormOptions(2).affine(false).track_running_stats(false), group);
    const at::Tensor x =
        torch::full({1, 2}, static_cast<double>(group->rank())).set_requires_grad(true);
    const at::Tensor y = norm(x);
    EXPECT_NEAR(y[0][0].item<double>(), group->rank() == 0 ? -1 : 1, 1e-4);
    y.sum().backward();
    EXPECT_NEAR(x.grad().abs().max().item<double>(), 0, 1e-6);
  });
}

TEST(SyncBatchNorm, SaysWhatDoesNotFit) {
  run_ranks(2, [](const Group& group) {
    SyncBatchNorm norm(BatchNormOptions(2), group);
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("[4, 3]; it must have"), [&] {
      norm(torch::ones({4, 3}));
    });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("two elements or more"), [&] {
      norm(torch::ones({group->rank(), 2}));
    });
  });
}

TEST(ConvertSyncBatchNorm, ReplacesThoseOfSequentialsWithWhatTheyHold) {
  run_ranks(2, [](const Group& group) {
    torch::nn::Sequential net(torch::nn::Linear(2, 3),
                              torch::nn::BatchNorm1d(3),
                              torch::nn::Linear(3, 2),
                              torch::nn::BatchNorm1d(2));
    {
      const torch::NoGradGuard no_grad;
      net->parameters().back().fill_(5);
      for (const at::Tensor& buffer : net->buffers()) {
        buffer.fill_(7);
      }
    }
    net->eval();
    const std::vector<std::string> names = net->named_parameters().keys();
    EXPECT_EQ(nn::convert_sync_batchnorm(*net, group), 2);
    EXPECT_EQ(net->named_parameters().keys(), names);
    EXPECT_EQ(net->parameters().back()[0].item<double>(), 5);
    EXPECT_TRUE(net->parameters().back().requires_grad());
    EXPECT_EQ(net->buffers().size(), 6U);
    for (const at::Tensor& buffer : net->buffers()) {
      EXPECT_TRUE(buffer.eq(7).all().item<bool>());
    }
    EXPECT_FALSE(net->children().back()->is_training());
    net->train();
    DistributedDataParallel<torch::nn::Sequential> model(net, group);
    // Each rank has one sample: plain BatchNorm rejects this input or normalizes the sample to 0.
    const at::Tensor y = model(torch::full({1, 2}, group->rank() + 1.0));
    EXPECT_GT((y - 5).abs().max().item<double>(), 0.5);
    y.square().sum().backward();
    EXPECT_GT(net->parameters()[0].grad().abs().max().item<double>(), 0);
    model.check_consistent();
  });
}

struct WithMemberImpl : torch::nn::Module {
  WithMemberImpl() : norm(register_module("norm", torch::nn::BatchNorm1d(2))) {}

  torch::nn::BatchNorm1d norm{nullptr};
};

TORCH_MODULE(WithMember);

TEST(ConvertSyncBatchNorm, ALayerOfTwoPlacesStaysOne) {
  run_ranks(1, [](const Group& group) {
    const torch::nn::BatchNorm1d norm(3);
    torch::nn::Sequential net(norm, torch::nn::Tanh(), norm);
    (void)nn::convert_sync_batchnorm(*net, group);
    EXPECT_EQ(net->children()[0], net->children()[2]);
    EXPECT_EQ(net->ptr(0), net->ptr(2));
    EXPECT_EQ(DistributedDataParallel(net, group).parameters().size(), 2U);
  });
}

TEST(ConvertSyncBatchNorm, NamesAMemberThatItCantReplace) {
  run_ranks(1, [](const Group& group) {
    struct Outer : torch::nn::Module {
      Outer() { register_module("body", WithMember()); }
    } outer;
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("'body.norm' is a member"), HasSubstr("SyncBatchNorm")),
                 [&] { nn::convert_sync_batchnorm(outer, group); });
  });
}

}  // namespace
}  // namespace unisono::testing
