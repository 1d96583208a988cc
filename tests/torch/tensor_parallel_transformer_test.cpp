// Compares transformers that are divided among ranks with torch::nn's transformer.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/nn/activation_checkpoint.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/functions.h"
#include "unisono/torch/parallel/tensor/layers.h"

#include "divided_models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using parallel::AttentionMasks;
using parallel::clip_grad_norm;
using parallel::gather_from_region;
using parallel::gather_state;
using parallel::ParallelSelfAttention;
using parallel::ParallelSelfAttentionOptions;
using parallel::ParallelTransformerEncoderLayer;
using parallel::ParallelTransformerEncoderLayerOptions;
using parallel::placed_tensors;
using parallel::scatter_to_region;
using parallel::sum_partial_gradients;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

constexpr double kRate = 0.5;
constexpr double kClippedNorm = 0.4;

// Number of ranks, and whether the sequence is divided.
class DividedTransformersOnWorlds : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  [[nodiscard]] static int n_ranks() { return std::get<0>(GetParam()); }

  [[nodiscard]] static bool sequence_parallel() { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Sizes,
                         DividedTransformersOnWorlds,
                         ::testing::Combine(::testing::Values(1, 2, 4), ::testing::Bool()));

TensorState copy_of(const TensorState& state) {
  TensorState copy;
  for (const auto& [name, tensor] : state) {
    copy.emplace(name, tensor.detach().clone());
  }
  return copy;
}

TEST_P(DividedTransformersOnWorlds, EqualTheWholeForwardAndBackward) {
  WholeTransformer whole = make_whole();
  const Text text = make_text(0, 3);
  const at::Tensor expected = whole->loss(text);
  expected.backward();
  const TensorState gradients = gradients_of(*whole);
  const TensorState values = copy_of(module_state(*whole));
  run_ranks(n_ranks(), [&](const Group& group) {
    DividedTransformer divided = make_divided(group, sequence_parallel());
    for (const auto& [name, tensor] : gather_state(placed_tensors(*divided))) {
      EXPECT_TRUE(torch::equal(tensor, values.at(name))) << name;
    }
    const at::Tensor loss = divided->loss(text);
    loss.backward();
    sum_partial_gradients(*divided);
    expect_close(loss, expected);
    expect_close(gather_gradients(*divided), gradients);
  });
}

// Results of training: the norms of the gradients and the final values.
struct TrainedLayer {
  std::vector<double> norms;
  TensorState values;
};

constexpr int kSteps = 20;

TrainedLayer train_whole(double norm_type) {
  WholeTransformer whole = make_whole();
  torch::optim::SGD optimizer(whole->parameters(), torch::optim::SGDOptions(kRate).momentum(0.9));
  TrainedLayer trained;
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    whole->loss(make_text(step, 4)).backward();
    trained.norms.push_back(
        torch::nn::utils::clip_grad_norm_(whole->parameters(), kClippedNorm, norm_type));
    optimizer.step();
  }
  trained.values = copy_of(module_state(*whole));
  return trained;
}

TEST_P(DividedTransformersOnWorlds, TrainAsTheWhole) {
  for (const double norm_type : {2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    const TrainedLayer expected = train_whole(norm_type);
    run_ranks(n_ranks(), [&](const Group& group) {
      DividedTransformer divided = make_divided(group, sequence_parallel());
      torch::optim::SGD optimizer(divided->parameters(),
                                  torch::optim::SGDOptions(kRate).momentum(0.9));
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        divided->loss(make_text(step, 4)).backward();
        sum_partial_gradients(*divided);
        const double norm = clip_grad_norm(*divided, kClippedNorm, {.norm_type = norm_type});
        const double whole_norm = expected.norms[static_cast<std::size_t>(step)];
        EXPECT_NEAR(norm, whole_norm, 1e-9 * whole_norm) << "step " << step;
        optimizer.step();
      }
      expect_close(gather_state(placed_tensors(*divided)), expected.values);
    });
  }
}

// 2 x 2 ranks: neighbours divide the model, and the pairs divide the batch.
TEST(DividedTransformers, TrainUnderDistributedDataParallel) {
  const TrainedLayer expected = train_whole(2);
  for (const bool sequence_parallel : {false, true}) {
    run_ranks(4, [&](const Group& world) {
      const int replica = world->rank() / 2;
      const Group tensor = world->split(replica, world->rank());
      const Group data = world->split(world->rank() % 2, world->rank());
      DistributedDataParallel<DividedTransformer> model(make_divided(tensor, sequence_parallel),
                                                        data);
      torch::optim::SGD optimizer(model.parameters(),
                                  torch::optim::SGDOptions(kRate).momentum(0.9));
      for (int step = 0; step < kSteps; ++step) {
        optimizer.zero_grad();
        const Text text = make_text(step, 4);
        parallel::vocab_parallel_cross_entropy(model(text.ids.narrow(1, 2 * replica, 2)),
                                               text.targets.narrow(1, 2 * replica, 2),
                                               tensor)
            .backward();
        sum_partial_gradients(*model.module());
        (void)clip_grad_norm(*model.module(), kClippedNorm);
        optimizer.step();
      }
      model.check_consistent();
      expect_close(gather_state(placed_tensors(*model.module())), expected.values);
    });
  }
}

// Each pair of neighbours has a part of a model, like the stages of a pipeline.
TEST(ClipGradNorm, CountsLayersOfOtherRanks) {
  double squares = 0;
  for (int stage = 0; stage < 2; ++stage) {
    WholeTransformer whole = make_whole();
    whole->loss(make_text(stage, 2)).backward();
    squares += std::pow(torch::nn::utils::clip_grad_norm_(whole->parameters(), 1), 2);
  }
  run_ranks(4, [&](const Group& world) {
    const int stage = world->rank() / 2;
    const Group tensor = world->split(stage, world->rank());
    const Group stages = world->split(world->rank() % 2, world->rank());
    DividedTransformer part = make_divided(tensor, false);
    part->loss(make_text(stage, 2)).backward();
    EXPECT_NEAR(clip_grad_norm(*part, 1, {.others = stages}), std::sqrt(squares), 1e-9);
    EXPECT_NEAR(clip_grad_norm(*part, 1, {.others = stages}), 1, 1e-5);
    EXPECT_THROW(clip_grad_norm(*part, -1), Error);
  });
}

at::Generator seeded() {
  return at::make_generator<at::CPUGeneratorImpl>(7);
}

TEST(ClipGradNorm, CountsLayersOfSeveralGroups) {
  constexpr double kElements = 2 * (4 * 8 + 8);
  run_ranks(4, [](const Group& world) {
    const Group pair = world->split(world->rank() / 2, world->rank());
    const parallel::ColumnParallelLinearOptions options{.in_features = 4, .out_features = 8};
    const torch::nn::Sequential model(parallel::ColumnParallelLinear(options, pair, seeded()),
                                      parallel::ColumnParallelLinear(options, world, seeded()));
    for (const at::Tensor& parameter : model->parameters()) {
      parameter.mutable_grad() = at::ones_like(parameter);
    }
    EXPECT_NEAR(clip_grad_norm(*model, kElements), std::sqrt(kElements), 1e-9);
  });
}

TEST_P(DividedTransformersOnWorlds, AttentionMasksAreTorchs) {
  torch::manual_seed(7);
  torch::nn::MultiheadAttention whole(kModelSize, kHeads);
  whole->to(torch::kDouble);
  const at::Tensor input = wave({kLength, 3, kModelSize});
  const at::Tensor factors = wave({kLength, 3, kModelSize}, 0.4);
  const at::Tensor hidden = torch::ones({kLength, kLength}, torch::kBool).triu(2);
  at::Tensor padding = torch::zeros({3, kLength}, torch::kBool);
  padding[1][0] = true;
  padding[2].narrow(0, 5, 3).fill_(true);
  for (const AttentionMasks& masks : {AttentionMasks{},
                                      AttentionMasks{.attention = hidden},
                                      AttentionMasks{.attention = wave({kLength, kLength})},
                                      AttentionMasks{.padding = padding},
                                      AttentionMasks{.attention = hidden, .padding = padding}}) {
    const bool is_numbers = !masks.attention.defined() || masks.attention.is_floating_point();
    const at::Tensor whole_input = input.clone().set_requires_grad(true);
    const at::Tensor expected =
        std::get<0>(whole(whole_input,
                          whole_input,
                          whole_input,
                          masks.padding,
                          /*need_weights=*/false,
                          is_numbers ? masks.attention : hiding_mask(masks.attention)));
    whole->zero_grad();
    (expected * factors).sum().backward();
    const TensorState gradients = gradients_of(*whole);
    run_ranks(n_ranks(), [&](const Group& group) {
      ParallelSelfAttention divided(
          ParallelSelfAttentionOptions{.embed_dim = kModelSize,
                                       .num_heads = kHeads,
                                       .sequence_parallel = sequence_parallel()},
          group,
          seeded());
      divided->to(torch::kDouble);
      const at::Tensor x = input.clone().set_requires_grad(true);
      const at::Tensor y =
          sequence_parallel()
              ? gather_from_region(divided(scatter_to_region(x, 0, group), masks), 0, group)
              : divided(x, masks);
      (y * factors).sum().backward();
      sum_partial_gradients(*divided);
      expect_close(y, expected);
      expect_close(x.grad(), whole_input.grad());
      expect_close(gather_gradients(*divided), gradients);
    });
  }
}

TEST_P(DividedTransformersOnWorlds, NormsMayComeFirst) {
  torch::manual_seed(7);
  torch::nn::TransformerEncoderLayer whole(
      torch::nn::TransformerEncoderLayerOptions(kModelSize, kHeads).dim_feedforward(16).dropout(0));
  whole->to(torch::kDouble);
  const at::Tensor input = wave({kLength, 3, kModelSize});
  const at::Tensor normed = whole->norm1(input);
  const at::Tensor between = input + std::get<0>(whole->self_attn(normed, normed, normed));
  const at::Tensor expected =
      between + whole->linear2(torch::gelu(whole->linear1(whole->norm2(between))));
  expected.square().sum().backward();
  const TensorState gradients = gradients_of(*whole);
  run_ranks(n_ranks(), [&](const Group& group) {
    ParallelTransformerEncoderLayer divided(
        ParallelTransformerEncoderLayerOptions{.d_model = kModelSize,
                                               .nhead = kHeads,
                                               .dim_feedforward = 16,
                                               .dropout = 0,
                                               .activation = parallel::Activation::kGelu,
                                               .norm_first = true,
                                               .sequence_parallel = sequence_parallel()},
        group,
        seeded());
    divided->to(torch::kDouble);
    const at::Tensor y =
        sequence_parallel()
            ? gather_from_region(divided(scatter_to_region(input, 0, group)), 0, group)
            : divided(input);
    y.square().sum().backward();
    sum_partial_gradients(*divided);
    expect_close(y, expected);
    expect_close(gather_gradients(*divided), gradients);
    if (!sequence_parallel()) {
      expect_close(torch::nn::Sequential(divided)->forward(input), expected);
    }
  });
}

// Returns the results of rank 0, which determines the random numbers.
TrainedLayer step_with_dropout(int n_ranks, bool sequence_parallel, bool trains) {
  TrainedLayer result;
  torch::manual_seed(11);
  run_ranks(n_ranks, [&](const Group& group) {
    DividedTransformer divided = make_divided(group, sequence_parallel, 0.3);
    divided->train(trains);
    const at::Tensor loss = divided->loss(make_text(0, 3));
    loss.backward();
    sum_partial_gradients(*divided);
    const TensorState gradients = copy_of(gather_gradients(*divided));
    if (group->rank() == 0) {
      result = {.norms = {loss.item<double>()}, .values = gradients};
    }
  });
  return result;
}

TEST_P(DividedTransformersOnWorlds, DropTheSameOnAnyNumberOfRanks) {
  const TrainedLayer alone = step_with_dropout(1, false, true);
  const TrainedLayer mine = step_with_dropout(n_ranks(), sequence_parallel(), true);
  EXPECT_NEAR(mine.norms[0], alone.norms[0], 1e-9 * alone.norms[0]);
  expect_close(mine.values, alone.values);
  const TrainedLayer without = step_with_dropout(n_ranks(), sequence_parallel(), false);
  EXPECT_GT(std::abs(mine.norms[0] - without.norms[0]), 1e-3);
  EXPECT_NEAR(without.norms[0], make_whole()->loss(make_text(0, 3)).item<double>(), 1e-9);
}

TEST(DividedTransformers, DropTheSameWhenComputedAgain) {
  run_ranks(1, [](const Group& group) {
    const auto gradients = [&](bool keeps_inputs_only) {
      DividedTransformer divided = make_divided(group, false, 0.3);
      torch::manual_seed(11);
      const Text text = make_text(0, 3);
      const auto first = [&](const at::Tensor& x) { return divided->first(x); };
      const at::Tensor embedded = divided->embedding(text.ids);
      const at::Tensor between =
          keeps_inputs_only ? nn::checkpoint(first, embedded) : first(embedded);
      divided->second(between).square().sum().backward();
      return copy_of(gradients_of(*divided->first));
    };
    expect_close(gradients(true), gradients(false));
  });
}

TEST(DividedTransformers, SayWhatDoesNotFit) {
  run_ranks(2, [](const Group& group) {
    const auto attention = [&](const ParallelSelfAttentionOptions& options) {
      return ParallelSelfAttention(options, group, seeded());
    };
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("ParallelSelfAttention: 3 heads"), HasSubstr("2 ranks")),
                 [&] { attention({.embed_dim = 6, .num_heads = 3}); });
    expect_error(ErrorCode::kInvalidArgument,
                 HasSubstr("an embedding of 6 elements can't be divided equally among 4 heads"),
                 [&] { attention({.embed_dim = 6, .num_heads = 4}); });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("a dropout of 1.5"), [&] {
      attention({.embed_dim = 8, .num_heads = 4, .dropout = 1.5});
    });
    ParallelSelfAttention layer = attention({.embed_dim = 8, .num_heads = 4});
    expect_error(ErrorCode::kInvalidArgument,
                 HasSubstr("must be [sequence, batch, embedding]"),
                 [&] { layer(torch::ones({4, 8})); });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("the mask of attention is f32[3, 4]"), [&] {
      layer(torch::ones({4, 2, 8}), AttentionMasks{.attention = torch::ones({3, 4})});
    });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("it must be bool[2, 4]"), [&] {
      layer(torch::ones({4, 2, 8}), AttentionMasks{.padding = torch::ones({4, 2}, torch::kBool)});
    });
    DividedTransformer model = make_divided(group, /*sequence_parallel=*/true);
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("pad it to a multiple"), [&] {
      (void)model(make_text(0, 1).ids.narrow(0, 0, 3));
    });
  });
}

}  // namespace
}  // namespace unisono::testing
