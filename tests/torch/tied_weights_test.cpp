// Models with a single tensor under two names, like language models that use the embedding as head.

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/save.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/amp/amp.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/nn/data_parallel.h"
#include "unisono/torch/optim/optimizers.h"
#include "unisono/torch/optim/weight_average.h"
#include "unisono/torch/optim/zero_redundancy_optimizer.h"
#include "unisono/torch/tensor/hash.h"

#include "canonical.h"
#include "rank_threads.h"
#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::testing {
namespace {

using test::throws_error;
using Group = std::shared_ptr<ProcessGroup>;

constexpr const char* kFirst = "embedding.weight";
constexpr const char* kSecond = "head.weight";

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const torch::Tensor& shared) : weight(register_parameter("weight", shared)) {}

  torch::Tensor weight;
};

TORCH_MODULE(Head);

struct TiedImpl : torch::nn::Cloneable<TiedImpl> {
  TiedImpl() { reset(); }

  void reset() override {
    embedding =
        register_module("embedding", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)));
    scale = register_parameter("scale", torch::ones({4}));
    head = register_module("head", Head(embedding->weight));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return torch::linear(torch::tanh(embedding(x)) * scale, head->weight);
  }

  torch::nn::Linear embedding{nullptr};
  torch::Tensor scale;
  Head head{nullptr};
};

TORCH_MODULE(Tied);

Tied make_tied(double value = 0.25) {
  Tied model;
  const torch::NoGradGuard no_grad;
  model->embedding->weight.copy_(torch::arange(16).view({4, 4}) * 0.01 + value);
  return model;
}

template <class Model>
void backward_pass(Model& model, int step = 0) {
  model(torch::full({2, 4}, 0.5 + step)).square().sum().backward();
}

TEST(TiedWeights, WrappersListAParameterOnce) {
  run_ranks(1, [](const Group& group) {
    const Tied module = make_tied();
    ASSERT_EQ(module->parameters().size(), 3U) << "LibTorch lists it twice";
    EXPECT_EQ(DistributedDataParallel(module, group).parameters().size(), 2U);
    EXPECT_EQ(nn::DataParallel<Tied>(module, {.n_replicas = 2}).parameters().size(), 2U);
  });
}

TEST(TiedWeights, ReplicasInThreadsAddTheGradientOfBothPlaces) {
  const Tied module = make_tied();
  Tied alone = make_tied();
  nn::DataParallel<Tied> model(module, {.n_replicas = 2});
  backward_pass(model);
  backward_pass(alone);
  EXPECT_TRUE(module->embedding->weight.grad().allclose(alone->embedding->weight.grad()));
}

TEST(TiedWeights, ClippingCountsAGradientOnce) {
  run_ranks(2, [](const Group& group) {
    DistributedDataParallel model(make_tied(), group);
    backward_pass(model);
    const Tied& module = model.module();
    const double expected =
        std::sqrt(module->embedding->weight.grad().square().sum().item<double>() +
                  module->scale.grad().square().sum().item<double>());
    EXPECT_NEAR(torch::nn::utils::clip_grad_norm_(model.parameters(), 1e9), expected, 1e-5);
  });
}

template <class Class, class ClassOptions>
struct OwnOptimizer {
  using Optimizer = Class;
  using Options = ClassOptions;
};

template <class Optimizer>
class TiedSteps : public ::testing::Test {};

using OwnOptimizers = ::testing::Types<OwnOptimizer<optim::Adadelta, optim::AdadeltaOptions>,
                                       OwnOptimizer<optim::AdamW, optim::AdamWOptions>,
                                       OwnOptimizer<optim::Lamb, optim::LambOptions>,
                                       OwnOptimizer<optim::Lars, optim::LarsOptions>>;
TYPED_TEST_SUITE(TiedSteps, OwnOptimizers);

TYPED_TEST(TiedSteps, AreMadeOnce) {
  Tied tied = make_tied();
  Tied once = make_tied();
  const typename TypeParam::Options options(0.1);
  typename TypeParam::Optimizer optimizer(tied->parameters(), options);
  typename TypeParam::Optimizer reference(
      std::vector<torch::Tensor>{once->embedding->weight, once->scale}, options);
  for (int step = 0; step < 3; ++step) {
    for (Tied* const model : {&tied, &once}) {
      (*model)->zero_grad();
      backward_pass(*model, step);
    }
    optimizer.step();
    reference.step();
  }
  EXPECT_TRUE(is_bit_equal({tied->embedding->weight}, {once->embedding->weight}));
}

TYPED_TEST(TiedSteps, OfTwoGroupsAreRefused) {
  const Tied model = make_tied();
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<torch::Tensor>{model->embedding->weight, model->scale});
  groups.emplace_back(std::vector<torch::Tensor>{model->head->weight});
  using Optimizer = typename TypeParam::Optimizer;
  EXPECT_THAT([&] { const Optimizer optimizer(groups, typename TypeParam::Options(0.1)); },
              throws_error(ErrorCode::kInvalidArgument, "f32[4, 4]", "groups 0 and 1"));
}

TEST(TiedWeights, AScalerDividesAGradientOnce) {
  Tied model = make_tied();
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  backward_pass(model);
  const torch::Tensor expected = model->head->weight.grad() / 8;
  GradScaler scaler({.init_scale = 8});
  scaler.unscale(optimizer);
  EXPECT_TRUE(model->head->weight.grad().allclose(expected));
}

TEST(TiedWeights, AnAverageIsExchangedForthAndBack) {
  const Tied model = make_tied(1);
  optim::WeightAverage average = optim::WeightAverage::uniform(model->parameters());
  average.update();
  const torch::Tensor averaged = model->head->weight.detach().clone();
  {
    const torch::NoGradGuard no_grad;
    model->head->weight.add_(1);
  }
  const torch::Tensor last = model->head->weight.detach().clone();
  average.swap();
  EXPECT_TRUE(torch::equal(model->head->weight, averaged));
  average.swap();
  EXPECT_TRUE(torch::equal(model->head->weight, last));
  ASSERT_EQ(average.values().size(), model->parameters().size());
  optim::WeightAverage resumed = optim::WeightAverage::uniform(model->parameters());
  resumed.restore(average.values(), average.n_updates());
  EXPECT_TRUE(is_bit_equal(resumed.values(), average.values()));
}

TEST(TiedWeights, AHashIsThatOfPythonsParameters) {
  const Tied model = make_tied();
  EXPECT_EQ(hash_tensors(model->parameters()),
            hash_tensors({model->scale, model->embedding->weight}));
}

class TiedStates : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return folder_.path() + "/tied"; }

  test::TemporaryFolder folder_;
};

TEST_F(TiedStates, HaveBothNamesAndOneSufficesToLoad) {
  save_state(path(), module_state(*make_tied(2)));
  const TensorState saved = load_state(path());
  ASSERT_TRUE(saved.contains(kFirst) && saved.contains(kSecond));
  for (const char* const left_out : {"", kFirst, kSecond}) {
    TensorState state = saved;
    state.erase(left_out);
    Tied model = make_tied();
    load_module_state(*model, state);
    EXPECT_TRUE(torch::equal(model->head->weight, saved.at(kFirst))) << left_out;
    EXPECT_TRUE(model->head->weight.is_same(model->embedding->weight));
  }
}

TEST_F(TiedStates, ThatLackOrContradictThemselvesAreRefused) {
  Tied model = make_tied();
  TensorState state = module_state(*make_tied(2));
  state[kSecond] = state[kFirst] + 1;
  EXPECT_THAT([&] { load_module_state(*model, state); },
              throws_error(ErrorCode::kInvalidArgument,
                           "\"embedding.weight\" and \"head.weight\"",
                           "one tensor of the module",
                           "differ"));
  state.erase(kFirst);
  state.erase(kSecond);
  EXPECT_THAT([&] { load_module_state(*model, state); },
              throws_error(ErrorCode::kInvalidArgument,
                           "\"embedding.weight\" (or \"head.weight\") is missing"));
  EXPECT_TRUE(torch::equal(model->head->weight, make_tied()->head->weight));
}

TEST_F(TiedStates, OfOptimizersGoOnUnderEitherName) {
  for (const bool is_renamed : {false, true}) {
    Tied model = make_tied();
    torch::optim::Adam optimizer(model->parameters(), 0.1);
    backward_pass(model);
    optimizer.step();
    TensorState state = optimizer_state(optimizer, *model);
    const std::string first = std::string("state.") + kFirst + ".";
    if (is_renamed) {
      const TensorState own = state_below(state, first);
      for (const auto& [key, value] : own) {
        state.erase(first + key);
      }
      add_state(state, std::string("state.") + kSecond + ".", own);
    }
    torch::optim::Adam resumed(model->parameters(), 0.2);
    load_optimizer_state(resumed, *model, state);
    EXPECT_TRUE(torch::equal(optimizer_state(resumed, *model).at(first + "exp_avg"),
                             optimizer_state(optimizer, *model).at(first + "exp_avg")));
  }
}

TEST_F(TiedStates, SavedOnRank0AreLoadedByLibTorch) {
  run_ranks(2, [&](const Group& group) {
    DistributedDataParallel model(make_tied(3), group);
    save_on_rank_0(*group, *model.module(), path());
  });
  Tied loaded = make_tied();
  torch::load(loaded, path());
  EXPECT_TRUE(torch::equal(loaded->head->weight, make_tied(3)->head->weight));
  EXPECT_TRUE(torch::equal(loaded->embedding->weight, loaded->head->weight));
}

// The parameters come from the module's own list, which contains the tensor twice.
TEST_F(TiedStates, OfAnOptimizerThatRanksDivideGoOnOnAnyNumber) {
  torch::Tensor expected;
  const auto train =
      [](DistributedDataParallel<Tied>& model, torch::optim::Optimizer& optimizer, int n_steps) {
        for (int step = 0; step < n_steps; ++step) {
          optimizer.zero_grad();
          backward_pass(model, step);
          optimizer.step();
        }
      };
  using Divided = optim::ZeroRedundancyOptimizer<torch::optim::Adam>;
  run_ranks(3, [&](const Group& group) {
    DistributedDataParallel model(make_tied(), group);
    DistributedDataParallel whole(make_tied(), group);
    Divided optimizer(group, model.module()->parameters(), torch::optim::AdamOptions(0.1));
    torch::optim::Adam reference(whole.parameters(), torch::optim::AdamOptions(0.1));
    train(model, optimizer, 2);
    train(whole, reference, 2);
    EXPECT_TRUE(is_bit_equal(model.parameters(), whole.parameters()));
    TensorState common = module_state(*model.module());
    add_state(common, "optimizer.", optimizer.common_state(*model.module()));
    TensorState own;
    add_state(own, "optimizer.", optimizer.own_state(*model.module()));
    const StateParts state = parts_to_save(*group, common, own);
    checkpoint::save_checkpoint(*group, path(), 1, state.parts, {}, state.common);
    train(model, optimizer, 2);
    if (group->rank() == 0) {
      expected = model.module()->head->weight.detach().clone();
    }
  });
  for (const int n_ranks : {1, 2}) {
    run_ranks(n_ranks, [&](const Group& group) {
      DistributedDataParallel model(make_tied(9), group);
      Divided optimizer(group, model.module()->parameters(), torch::optim::AdamOptions(0.5));
      TensorState state = load_state(*group, path());
      const TensorState of_optimizer = state_below(state, "optimizer.");
      std::erase_if(state, [](const auto& one) { return one.first.starts_with("optimizer."); });
      load_module_state(*model.module(), state);
      optimizer.load_state(*model.module(), of_optimizer);
      train(model, optimizer, 2);
      EXPECT_TRUE(torch::allclose(model.module()->head->weight, expected, 1e-5, 1e-6)) << n_ranks;
    });
  }
}

}  // namespace
}  // namespace unisono::testing
