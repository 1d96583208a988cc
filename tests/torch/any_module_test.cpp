// torch::nn::AnyModule under DistributedDataParallel.

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "canonical.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::nn::AnyModule;
using Group = std::shared_ptr<ProcessGroup>;
using Pair = std::tuple<torch::Tensor, torch::Tensor>;

// Takes arguments and returns results of types that no layer of LibTorch has.
struct ScaledImpl : torch::nn::Cloneable<ScaledImpl> {
  ScaledImpl() { reset(); }

  void reset() override {
    linear = register_module("linear", torch::nn::Linear(3, 2));
    const torch::NoGradGuard no_grad;
    linear->weight.copy_(torch::arange(6.0).view({2, 3}).sin());
    linear->bias.fill_(0.25);
  }

  Pair forward(const torch::Tensor& x, float factor, const std::string& what) {
    const torch::Tensor y = linear(x);
    return {y * factor, what == "tanh" ? torch::tanh(y) : y};
  }

  torch::nn::Linear linear{nullptr};
};

TORCH_MODULE(Scaled);

torch::Tensor input_of(int rank, int step) {
  return torch::arange(12.0).view({4, 3}).mul(0.1 * (step + 1)).add(rank).cos();
}

torch::Tensor loss_of(const Pair& result) {
  return std::get<0>(result).sum() + std::get<1>(result).square().sum();
}

TEST(AnyModule, TrainsAsTheSameModuleByItsHolder) {
  run_ranks(2, [](const Group& group) {
    const Scaled scaled;
    const AnyModule any(Scaled(std::dynamic_pointer_cast<ScaledImpl>(scaled->clone())));
    const DistributedDataParallelOptions many_buckets{.bucket_cap_mb = 1e-5,
                                                      .first_bucket_cap_mb = 1e-5};
    DistributedDataParallel twin(scaled, group, many_buckets);
    DistributedDataParallel model(any, group, many_buckets);
    torch::optim::SGD of_twin(twin.parameters(), 0.1);
    torch::optim::SGD optimizer(model.parameters(), 0.1);
    const std::vector<at::Tensor> first = clone_all(model.parameters());
    for (int step = 0; step < 4; ++step) {
      twin.zero_grad();
      model.zero_grad();
      const torch::Tensor x = input_of(group->rank(), step);
      loss_of(twin(x, 2.0F, std::string("tanh"))).backward();
      loss_of(model.forward<Pair>(x, 2.0F, std::string("tanh"))).backward();
      EXPECT_TRUE(
          is_bit_equal(clone_gradients(model.parameters()), clone_gradients(twin.parameters())));
      of_twin.step();
      optimizer.step();
    }
    EXPECT_TRUE(is_bit_equal(model.parameters(), twin.parameters()));
    EXPECT_FALSE(is_bit_equal(model.parameters(), first));
    EXPECT_EQ(model.n_buckets(), twin.n_buckets());
    EXPECT_TRUE(model.parameters()[0].is_same(any.get<ScaledImpl>().linear->weight));
    model.check_consistent();
  });
}

// The inner module behaves as without an AnyModule around it.
TEST(AnyModule, IsSwitchedAndHasItsBuffersAndSparseGradients) {
  run_ranks(2, [](const Group& group) {
    const double rank = group->rank();
    const torch::nn::BatchNorm1d norm(torch::nn::BatchNorm1dOptions(1).momentum(1.0));
    DistributedDataParallel model(AnyModule(norm), group);
    model(torch::tensor({{10 * rank}, {10 * rank + 2}})).sum().backward();
    EXPECT_EQ(norm->running_mean.item<double>(), 10 * rank + 1);
    model.zero_grad();
    EXPECT_FALSE(norm->weight.grad().defined());
    model.eval();
    EXPECT_FALSE(norm->is_training());
    model(torch::zeros({2, 1}));
    EXPECT_EQ(norm->running_mean.item<double>(), 1) << "rank 0's";
    model.train();
    EXPECT_TRUE(norm->is_training());

    const torch::nn::Embedding words(torch::nn::EmbeddingOptions(5, 2).sparse(true));
    DistributedDataParallel lookup(AnyModule(words), group);
    lookup(torch::full({1}, group->rank(), torch::kLong)).sum().backward();
    EXPECT_TRUE(words->weight.grad().is_sparse());
    EXPECT_EQ(words->weight.grad().to_dense().sum().item<double>(), 2);
  });
}

TEST(AnyModule, AnEmptyOneIsRefused) {
  run_ranks(1, [](const Group& group) {
    expect_error(
        ErrorCode::kInvalidArgument,
        AllOf(HasSubstr("the AnyModule is empty"), HasSubstr("torch::nn::AnyModule(Net())")),
        [&] { const DistributedDataParallel<AnyModule> model(AnyModule(), group); });
    DistributedDataParallel model(AnyModule(torch::nn::Linear(1, 1)), group);
    model.module() = AnyModule();
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("the AnyModule is empty"), [&] {
      model(torch::ones({1, 1}));
    });
  });
}

TEST(AnyModule, TypesThatDoNotFitAreRefusedWithWhatToDo) {
  run_ranks(2, [](const Group& group) {
    DistributedDataParallel model(AnyModule(Scaled()), group);
    const torch::Tensor x = input_of(group->rank(), 0);
    const std::string here = "[rank " + std::to_string(group->rank());
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr(here),
                       HasSubstr("argument #1 to be of type float"),
                       HasSubstr("value of type double"),
                       HasSubstr("an AnyModule converts nothing")),
                 [&] { model.forward<Pair>(x, 2.0, std::string("tanh")); });
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("expects 3 argument(s), but received 1"),
                       HasSubstr("an AnyModule converts nothing")),
                 [&] { model(x); });
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr(here),
                       HasSubstr("returns std::tuple<at::Tensor, at::Tensor>, not at::Tensor"),
                       HasSubstr("model.forward<std::tuple<at::Tensor, at::Tensor>")),
                 [&] { model(x, 2.0F, std::string("tanh")); });
    // An error of the module itself is passed on unchanged, and the training continues.
    EXPECT_THROW(model.forward<Pair>(torch::ones({1, 7}), 2.0F, std::string()), c10::Error);
    loss_of(model.forward<Pair>(x, 2.0F, std::string())).backward();
    model.check_consistent();
  });
}

}  // namespace
}  // namespace unisono::testing
