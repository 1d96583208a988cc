// Gradients of embeddings that contain only the rows of the looked-up words.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
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
using Group = std::shared_ptr<ProcessGroup>;

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kWidth = 3;

// An embedding of words, optionally with a bag or a tied output layer.
struct WordsImpl : torch::nn::Module {
  explicit WordsImpl(bool is_sparse, torch::Dtype type = torch::kFloat)
      : words(register_module(
            "words",
            torch::nn::Embedding(torch::nn::EmbeddingOptions(kRows, kWidth).sparse(is_sparse)))),
        bag(register_module("bag",
                            torch::nn::EmbeddingBag(torch::nn::EmbeddingBagOptions(kRows, kWidth)
                                                        .sparse(is_sparse)
                                                        .mode(torch::kSum)))) {
    to(type);
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : parameters()) {
      parameter.copy_(torch::arange(kRows * kWidth).view({kRows, kWidth}).sin());
    }
  }

  torch::Tensor forward(const torch::Tensor& text, bool uses_bag, bool is_tied = false) {
    const torch::Tensor found = words(text);
    torch::Tensor sum = found.mul(found).sum();
    if (uses_bag) {
      sum = sum + bag(text.unsqueeze(0)).sin().sum();
    }
    return is_tied ? sum + torch::matmul(found, words->weight.t()).sum() : sum;
  }

  torch::nn::Embedding words{nullptr};
  torch::nn::EmbeddingBag bag{nullptr};
};

TORCH_MODULE(Words);

using Wrapped = DistributedDataParallel<Words>;

// Returns each word at most once, so that a rank's own gradients don't depend on an order. Two
// ranks have some common words.
torch::Tensor text_of(int rank, int step) {
  return (torch::arange(12, torch::kLong) + (7 * rank) + (3 * step)).remainder(kRows);
}

std::vector<at::Tensor> dense_gradients(const Wrapped& model) {
  std::vector<at::Tensor> gradients = clone_gradients(model.parameters());
  for (at::Tensor& gradient : gradients) {
    gradient = gradient.defined() ? gradient.to_dense() : gradient;
  }
  return gradients;
}

class SparseGradients : public ::testing::TestWithParam<std::tuple<int, torch::Dtype, bool>> {};

TEST_P(SparseGradients, AreTheDenseOnesBitForBit) {
  const auto& [world_size, type, is_tied] = GetParam();
  run_ranks(world_size, [&, type = type, is_tied = is_tied](const Group& group) {
    Wrapped sparse(Words(true, type), group);
    Wrapped dense(Words(false, type), group);
    torch::optim::SGD optimizer(sparse.parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      const torch::Tensor text = text_of(group->rank(), step);
      optimizer.zero_grad();
      dense.zero_grad();
      sparse(text, true, is_tied).backward();
      dense(text, true, is_tied).backward();
      EXPECT_TRUE(sparse.module()->bag->weight.grad().is_sparse());
      EXPECT_TRUE(is_bit_equal(dense_gradients(sparse), clone_gradients(dense.parameters())));
      optimizer.step();
      const torch::NoGradGuard no_grad;
      for (std::size_t i = 0; i < 2; ++i) {
        dense.parameters()[i].copy_(sparse.parameters()[i]);
      }
    }
    EXPECT_FALSE(sparse.parameters()[0].equal(Words(true, type)->words->weight));
  });
}

INSTANTIATE_TEST_SUITE_P(Worlds,
                         SparseGradients,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5),
                                            ::testing::Values(torch::kFloat, torch::kBFloat16),
                                            ::testing::Bool()));

TEST(SparseGradient, HasTheRowsOfAllRanksOnly) {
  run_ranks(2, [](const Group& group) {
    Wrapped model(Words(true), group, {.find_unused_parameters = true});
    model(torch::tensor({std::int64_t{4}, std::int64_t{5} + group->rank()}), false).backward();
    const torch::Tensor gradient = model.module()->words->weight.grad();
    EXPECT_TRUE(gradient.is_coalesced());
    EXPECT_TRUE(gradient.indices().equal(torch::tensor({{4, 5, 6}}, torch::kLong)));
    EXPECT_FALSE(model.module()->bag->weight.grad().defined()) << "no rank has used it";
    // Now one rank uses the bag.
    model.zero_grad();
    model(torch::tensor({std::int64_t{7}}), group->rank() == 1).backward();
    EXPECT_TRUE(
        model.module()->bag->weight.grad().indices().equal(torch::tensor({{7}}, torch::kLong)));
  });
}

TEST(SparseGradient, AddsUpPassesThatAreNotSynchronized) {
  run_ranks(2, [](const Group& group) {
    Wrapped sparse(Words(true), group);
    Wrapped dense(Words(false), group);
    for (Wrapped* const model : {&sparse, &dense}) {
      {
        const auto guard = model->no_sync();
        (*model)(text_of(group->rank(), 0), true).backward();
      }
      // Uses other words, so that sums have at most two addends.
      (*model)(text_of(group->rank(), 4), true).backward();
    }
    EXPECT_TRUE(is_bit_equal(dense_gradients(sparse), clone_gradients(dense.parameters())));
  });
}

TEST(SparseGradient, RanksWithoutBatchesHaveNone) {
  run_ranks(2, [](const Group& group) {
    const auto train = [&](Wrapped& model) {
      torch::optim::SGD optimizer(model.parameters(), 0.1);
      model.join(
          [&] {
            for (int step = 0; step < 2 + 3 * group->rank(); ++step) {
              optimizer.zero_grad();
              model(text_of(group->rank(), step), true).backward();
              optimizer.step();
            }
          },
          {.divide_by_initial_world_size = false});
    };
    Wrapped sparse(Words(true), group);
    Wrapped dense(Words(false), group);
    train(sparse);
    train(dense);
    EXPECT_TRUE(is_bit_equal(sparse.parameters(), dense.parameters()));
  });
}

TEST(SparseGradient, WithANaNIsNamed) {
  run_ranks(2, [](const Group& group) {
    Wrapped model(Words(true), group, {.non_finite_gradients = NonFiniteGradients::kThrow});
    const torch::Tensor loss = model(text_of(group->rank(), 0), true);
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("rank 1 in 'bag.weight'"), [&] {
      (group->rank() == 1 ? loss * std::numeric_limits<float>::quiet_NaN() : loss).backward();
    });
    model(text_of(group->rank(), 0), true).backward();
    EXPECT_TRUE(model.module()->words->weight.grad().is_sparse()) << "the training goes on";
  });
}

TEST(SparseGradient, OfTheCallersThatDoesNotFitIsNamed) {
  run_ranks(2, [](const Group& group) {
    Wrapped model(Words(true), group, {.find_unused_parameters = true});
    at::Tensor bag = model.module()->bag->weight;
    for (const at::Tensor& wrong : {torch::zeros({kRows, kWidth}, torch::kDouble),
                                    torch::zeros({kRows, 1}),
                                    torch::zeros({kRows, kWidth}).to_sparse(2)}) {
      bag.mutable_grad() = wrong;
      expect_error(ErrorCode::kInvalidArgument,
                   AllOf(HasSubstr("the gradient of parameter 'bag.weight' is "),
                         HasSubstr("but the parameter is f32[40, 3]")),
                   [&] { model(text_of(group->rank(), 0), false).backward(); });
      model.zero_grad();
    }
    model(text_of(group->rank(), 0), true).backward();
    EXPECT_TRUE(bag.grad().is_sparse()) << "the training goes on";
  });
}

TEST(SparseGradient, OfOneRanksModuleOnlyIsAMismatch) {
  run_ranks(2, [](const Group& group) {
    expect_error(ErrorCode::kMismatch,
                 HasSubstr("parameter 'words.weight' is f32[40, 3] on rank 0 and f32[40, 3] with "
                           "sparse gradient on rank 1"),
                 [&] { const Wrapped model(Words(group->rank() == 1), group); });
  });
}

TEST(SparseGradient, IsRefusedWithLogicalRanks) {
  run_ranks(1, [](const Group& group) {
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("logical_ranks"), HasSubstr("'words.weight' is sparse")),
                 [&] { const Wrapped model(Words(true), group, {.logical_ranks = 2}); });
  });
}

// A layer with a sparse gradient that the module does not announce.
struct HiddenImpl : torch::nn::Module {
  HiddenImpl() : table(register_parameter("table", torch::ones({kRows, kWidth}))) {}

  torch::Tensor forward(const torch::Tensor& text) const {
    return torch::embedding(table, text, -1, false, /*sparse=*/true).sum();
  }

  torch::Tensor table;
};

TORCH_MODULE(Hidden);

TEST(SparseGradient, OfAnotherLayerIsRefusedByName) {
  run_ranks(1, [](const Group& group) {
    DistributedDataParallel model(Hidden(), group);
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("parameter 'table' is sparse"), HasSubstr("EmbeddingBag only")),
                 [&] { model(text_of(0, 0)).backward(); });
  });
}

}  // namespace
}  // namespace unisono::testing
