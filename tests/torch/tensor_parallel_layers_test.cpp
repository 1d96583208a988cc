// Compares layers that are divided among ranks with the whole layers.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/functions.h"
#include "unisono/torch/parallel/tensor/layers.h"

#include "divided_models.h"
#include "rank_threads.h"
#include "scalars.h"

namespace unisono::testing {
namespace {

using parallel::ColumnParallelLinear;
using parallel::ColumnParallelLinearOptions;
using parallel::copy_to_region;
using parallel::gather_from_region;
using parallel::gather_state;
using parallel::gather_to_region;
using parallel::kSequenceDim;
using parallel::LossReduction;
using parallel::placed_tensors;
using parallel::reduce_from_region;
using parallel::reduce_scatter_from_region;
using parallel::RowParallelLinear;
using parallel::RowParallelLinearOptions;
using parallel::scatter_to_region;
using parallel::sum_partial_gradients;
using parallel::vocab_parallel_cross_entropy;
using parallel::VocabParallelEmbedding;
using parallel::VocabParallelEmbeddingOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Group = std::shared_ptr<ProcessGroup>;

class DividedLayersOnWorlds : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, DividedLayersOnWorlds, ::testing::Values(1, 2, 4));

at::Generator seeded(std::uint64_t seed) {
  return at::make_generator<at::CPUGeneratorImpl>(seed);
}

at::Tensor chunk_of(const at::Tensor& whole, std::int64_t dim, const Group& group) {
  return whole.chunk(group->world_size(), dim)[static_cast<std::size_t>(group->rank())];
}

// A region function `cross` with its definition: the outputs for the tensors x_r of all ranks, and
// the gradients for the output gradients g_r.
struct Definition {
  std::function<at::Tensor(const at::Tensor&, std::int64_t dim, const Group&)> cross;
  std::function<at::Tensor(const std::vector<at::Tensor>& xs, std::int64_t dim, int rank)> output;
  std::function<at::Tensor(const std::vector<at::Tensor>& gs, std::int64_t dim, int rank)> gradient;
};

at::Tensor own(const std::vector<at::Tensor>& of_ranks, std::int64_t /*dim*/, int rank) {
  return of_ranks[static_cast<std::size_t>(rank)];
}

at::Tensor total(const std::vector<at::Tensor>& of_ranks, std::int64_t /*dim*/, int /*rank*/) {
  return torch::stack(of_ranks).sum(0);
}

at::Tensor own_chunk(const std::vector<at::Tensor>& of_ranks, std::int64_t dim, int rank) {
  return own(of_ranks, dim, rank)
      .chunk(static_cast<std::int64_t>(of_ranks.size()), dim)[static_cast<std::size_t>(rank)];
}

at::Tensor joined(const std::vector<at::Tensor>& of_ranks, std::int64_t dim, int /*rank*/) {
  return torch::cat(of_ranks, dim);
}

at::Tensor chunk_of_total(const std::vector<at::Tensor>& of_ranks, std::int64_t dim, int rank) {
  return total(of_ranks, dim, rank)
      .chunk(static_cast<std::int64_t>(of_ranks.size()), dim)[static_cast<std::size_t>(rank)];
}

std::vector<Definition> definitions() {
  const auto without_dim = [](at::Tensor (*cross)(const at::Tensor&, const Group&)) {
    return
        [cross](const at::Tensor& x, std::int64_t, const Group& group) { return cross(x, group); };
  };
  return {{without_dim(copy_to_region), own, total},
          {without_dim(reduce_from_region), total, own},
          {scatter_to_region, own_chunk, joined},
          {gather_from_region, joined, own_chunk},
          {gather_to_region, joined, chunk_of_total},
          {reduce_scatter_from_region, chunk_of_total, joined}};
}

TEST_P(DividedLayersOnWorlds, RegionsDoWhatTheyAreDefinedAs) {
  const int n_ranks = GetParam();
  for (const std::int64_t dim : {0, 1, -1}) {
    for (const Definition& definition : definitions()) {
      std::vector<at::Tensor> xs;
      for (int rank = 0; rank < n_ranks; ++rank) {
        xs.push_back(wave({4, 8, 12}, 0.3 + rank));
      }
      std::vector<at::Tensor> gs;
      for (int rank = 0; rank < n_ranks; ++rank) {
        gs.push_back(wave(definition.output(xs, dim, rank).sizes(), 0.2 + rank));
      }
      run_ranks(n_ranks, [&](const Group& group) {
        const int rank = group->rank();
        const at::Tensor x = own(xs, dim, rank).clone().set_requires_grad(true);
        const at::Tensor y = definition.cross(x, dim, group);
        (y * own(gs, dim, rank)).sum().backward();
        expect_close(y, definition.output(xs, dim, rank));
        expect_close(x.grad(), definition.gradient(gs, dim, rank));
      });
    }
  }
}

// The second derivative of y = (sum over ranks of x)^3. The first derivative is 3 s^2.
TEST(DividedLayers, BackwardOfRegionsCanBeDifferentiated) {
  run_ranks(2, [](const Group& group) {
    const at::Tensor x =
        torch::full({1}, 1.0 + group->rank(), torch::kDouble).set_requires_grad(true);
    const at::Tensor y = reduce_from_region(x, group).pow(3).sum();
    const at::Tensor first =
        torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
    EXPECT_DOUBLE_EQ(first.item<double>(), 27);
    EXPECT_DOUBLE_EQ(torch::autograd::grad({first.sum()}, {x})[0].item<double>(), 2 * 18);
  });
}

TEST(DividedLayers, RegionsSayWhatDoesNotFit) {
  run_ranks(2, [](const Group& group) {
    expect_error(
        ErrorCode::kInvalidArgument,
        AllOf(HasSubstr("scatter_to_region"), HasSubstr("f64[3, 4]"), HasSubstr("2 ranks")),
        [&] { (void)scatter_to_region(wave({3, 4}), 0, group); });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("has no dimension 2"), [&] {
      (void)gather_from_region(wave({3, 4}), 2, group);
    });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("undefined"), [&] {
      (void)reduce_from_region({}, group);
    });
  });
}

// Output, and gradients of the input and of the parameters, of the layer of torch::nn.
struct Expected {
  at::Tensor output;
  at::Tensor input_gradient;
  TensorState gradients;
  TensorState first_values;
};

template <class Layer>
Expected expected_of(Layer& whole, const at::Tensor& input) {
  Expected expected;
  for (const auto& [name, tensor] : module_state(*whole)) {
    expected.first_values.emplace(name, tensor.clone());
  }
  whole->to(torch::kDouble);
  const bool has_gradient = input.is_floating_point();
  const at::Tensor x = input.clone().set_requires_grad(has_gradient);
  expected.output = whole(x);
  (expected.output * wave(expected.output.sizes(), 0.9)).sum().backward();
  expected.input_gradient = x.grad();
  expected.gradients = gradients_of(*whole);
  return expected;
}

template <class Layer>
void expect_first_values(const Layer& divided, const Expected& expected) {
  for (const auto& [name, tensor] : gather_state(placed_tensors(*divided))) {
    EXPECT_TRUE(torch::equal(tensor, expected.first_values.at(name))) << name;
  }
}

TEST_P(DividedLayersOnWorlds, ColumnsEqualTheWhole) {
  for (const bool bias : {true, false}) {
    torch::manual_seed(3);
    torch::nn::Linear whole(torch::nn::LinearOptions(6, 8).bias(bias));
    const at::Tensor input = wave({4, 5, 6});
    const Expected expected = expected_of(whole, input);
    const at::Tensor factors = wave({4, 5, 8}, 0.9);
    for (const bool gathers : {true, false}) {
      for (const bool sequence_parallel : {true, false}) {
        run_ranks(GetParam(), [&](const Group& group) {
          ColumnParallelLinear layer(
              ColumnParallelLinearOptions{.in_features = 6,
                                          .out_features = 8,
                                          .bias = bias,
                                          .gather_output = gathers,
                                          .sequence_parallel = sequence_parallel},
              group,
              seeded(3));
          expect_first_values(layer, expected);
          layer->to(torch::kDouble);
          const auto part = [&](const at::Tensor& x) {
            return sequence_parallel ? chunk_of(x, kSequenceDim, group) : x;
          };
          const auto of_output = [&](const at::Tensor& y) {
            return gathers ? y : chunk_of(y, -1, group);
          };
          const at::Tensor x = part(input).clone().set_requires_grad(true);
          const at::Tensor y = layer(x);
          (y * of_output(factors)).sum().backward();
          expect_close(y, of_output(expected.output));
          expect_close(x.grad(), part(expected.input_gradient));
          expect_close(gather_gradients(*layer), expected.gradients);
        });
      }
    }
  }
}

TEST_P(DividedLayersOnWorlds, RowsEqualTheWhole) {
  for (const bool bias : {true, false}) {
    torch::manual_seed(3);
    torch::nn::Linear whole(torch::nn::LinearOptions(8, 6).bias(bias));
    const at::Tensor input = wave({4, 5, 8});
    const Expected expected = expected_of(whole, input);
    const at::Tensor factors = wave({4, 5, 6}, 0.9);
    for (const bool is_split : {true, false}) {
      for (const bool sequence_parallel : {true, false}) {
        run_ranks(GetParam(), [&](const Group& group) {
          RowParallelLinear layer(RowParallelLinearOptions{.in_features = 8,
                                                           .out_features = 6,
                                                           .bias = bias,
                                                           .input_is_split = is_split,
                                                           .sequence_parallel = sequence_parallel},
                                  group,
                                  seeded(3));
          expect_first_values(layer, expected);
          layer->to(torch::kDouble);
          const auto part = [&](const at::Tensor& x) {
            return is_split ? chunk_of(x, -1, group) : x;
          };
          const auto of_output = [&](const at::Tensor& y) {
            return sequence_parallel ? chunk_of(y, kSequenceDim, group) : y;
          };
          const at::Tensor x = part(input).clone().set_requires_grad(true);
          const at::Tensor y = layer(x);
          (y * of_output(factors)).sum().backward();
          sum_partial_gradients(*layer);
          expect_close(y, of_output(expected.output));
          expect_close(x.grad(), part(expected.input_gradient));
          expect_close(gather_gradients(*layer), expected.gradients);
        });
      }
    }
  }
}

TEST_P(DividedLayersOnWorlds, EmbeddingsEqualTheWhole) {
  torch::manual_seed(3);
  torch::nn::Embedding whole(kVocabulary, 5);
  const at::Tensor ids = make_text(1, 3).ids;
  const Expected expected = expected_of(whole, ids);
  for (const bool sequence_parallel : {true, false}) {
    run_ranks(GetParam(), [&](const Group& group) {
      VocabParallelEmbedding layer(
          VocabParallelEmbeddingOptions{.num_embeddings = kVocabulary,
                                        .embedding_dim = 5,
                                        .sequence_parallel = sequence_parallel},
          group,
          seeded(3));
      expect_first_values(layer, expected);
      layer->to(torch::kDouble);
      const auto of_output = [&](const at::Tensor& y) {
        return sequence_parallel ? chunk_of(y, kSequenceDim, group) : y;
      };
      const at::Tensor y = layer(ids);
      (y * of_output(wave({kLength, 3, 5}, 0.9))).sum().backward();
      expect_close(y, of_output(expected.output));
      expect_close(gather_gradients(*layer), expected.gradients);
      EXPECT_TRUE(torch::equal(layer(ids.to(torch::kInt)), y));
    });
  }
}

TEST_P(DividedLayersOnWorlds, LossesEqualTheWhole) {
  namespace F = torch::nn::functional;
  // Large logits. Their exponentials overflow a double.
  const at::Tensor logits = wave({5, 3, 12}) * 900;
  at::Tensor targets = (torch::arange(15, torch::kLong) * 5).remainder(12).view({5, 3});
  targets[1][2] = 7;
  const auto torchs = F::CrossEntropyFuncOptions().ignore_index(7);
  const std::vector<std::pair<LossReduction, F::CrossEntropyFuncOptions>> reductions{
      {LossReduction::kMean, F::CrossEntropyFuncOptions(torchs).reduction(torch::kMean)},
      {LossReduction::kSum, F::CrossEntropyFuncOptions(torchs).reduction(torch::kSum)},
      {LossReduction::kNone, F::CrossEntropyFuncOptions(torchs).reduction(torch::kNone)}};
  for (const auto& [reduction, options] : reductions) {
    const at::Tensor whole = logits.clone().set_requires_grad(true);
    const at::Tensor expected = F::cross_entropy(whole.flatten(0, 1), targets.flatten(), options);
    (expected * wave(expected.sizes())).sum().backward();
    run_ranks(GetParam(), [&, kind = reduction](const Group& group) {
      const at::Tensor mine = chunk_of(logits, -1, group).clone().set_requires_grad(true);
      const at::Tensor losses = vocab_parallel_cross_entropy(
          mine, targets, group, {.reduction = kind, .ignore_index = 7});
      (losses.flatten() * wave(expected.sizes()).flatten()).sum().backward();
      expect_close(losses.flatten(), expected.flatten());
      expect_close(mine.grad(), chunk_of(whole.grad(), -1, group));
    });
  }
}

TEST(DividedLayers, LossesOfSixteenBitsAreComputedInThirtyTwo) {
  run_ranks(2, [](const Group& group) {
    const at::Tensor logits = wave({6, 8}).to(torch::kBFloat16);
    const at::Tensor targets = torch::arange(6, torch::kLong);
    const at::Tensor mine = chunk_of(logits, 1, group).clone().set_requires_grad(true);
    const at::Tensor loss = vocab_parallel_cross_entropy(mine, targets, group);
    loss.backward();
    EXPECT_EQ(loss.scalar_type(), torch::kFloat);
    EXPECT_EQ(mine.grad().scalar_type(), torch::kBFloat16);
    const at::Tensor expected =
        torch::nn::functional::cross_entropy(logits.to(torch::kFloat), targets);
    EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-6);
  });
}

TEST(DividedLayers, LayersSayWhatCantBeDivided) {
  run_ranks(4, [](const Group& group) {
    const auto expect_refused = [&](const ::testing::Matcher<std::string>& message,
                                    const std::function<void()>& body) {
      expect_error(ErrorCode::kInvalidArgument, message, body);
    };
    expect_refused(AllOf(HasSubstr("ColumnParallelLinear: 10 output features"),
                         HasSubstr("among 4 ranks; take a multiple, 12 for example")),
                   [&] {
                     ColumnParallelLinear(
                         ColumnParallelLinearOptions{.in_features = 4, .out_features = 10}, group);
                   });
    expect_refused(HasSubstr("RowParallelLinear: 6 input features"), [&] {
      RowParallelLinear(RowParallelLinearOptions{.in_features = 6, .out_features = 4}, group);
    });
    expect_refused(HasSubstr("RowParallelLinear: there are 0 output features"), [&] {
      RowParallelLinear(RowParallelLinearOptions{.in_features = 4, .out_features = 0}, group);
    });
    expect_refused(HasSubstr("VocabParallelEmbedding: 0 embeddings"), [&] {
      VocabParallelEmbedding(VocabParallelEmbeddingOptions{.num_embeddings = 0, .embedding_dim = 4},
                             group);
    });
    expect_refused(HasSubstr("ColumnParallelLinear: the process group is null"), [&] {
      ColumnParallelLinear(ColumnParallelLinearOptions{.in_features = 4, .out_features = 4},
                           nullptr);
    });
  });
}

TEST(DividedLayers, LayersSayWhichInputDoesNotFit) {
  run_ranks(2, [](const Group& group) {
    ColumnParallelLinear columns(
        ColumnParallelLinearOptions{.in_features = 4, .out_features = 4}, group, seeded(1));
    expect_error(ErrorCode::kInvalidArgument,
                 AllOf(HasSubstr("/2] ColumnParallelLinear: the input is f32[2, 3]"),
                       HasSubstr("4 elements")),
                 [&] { columns(torch::ones({2, 3})); });
    VocabParallelEmbedding embedding(
        VocabParallelEmbeddingOptions{.num_embeddings = 4, .embedding_dim = 2}, group, seeded(1));
    expect_error(ErrorCode::kInvalidArgument,
                 HasSubstr("id 4 is outside the vocabulary of 4"),
                 [&] { embedding(torch::arange(5)); });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("must be i64 or i32"), [&] {
      embedding(torch::ones({2}));
    });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("target -1 is none of the 4 classes"), [&] {
      (void)vocab_parallel_cross_entropy(
          torch::ones({2, 2}), torch::tensor({1, -1}, torch::kLong), group);
    });
    expect_error(ErrorCode::kInvalidArgument, HasSubstr("the logits are f32[2, 2]"), [&] {
      (void)vocab_parallel_cross_entropy(torch::ones({2, 2}), torch::arange(3), group);
    });
    // The group still works.
    expect_close(embedding(torch::arange(4)).detach().to(torch::kDouble),
                 gather_state(placed_tensors(*embedding)).at("weight").to(torch::kDouble));
  });
}

}  // namespace
}  // namespace unisono::testing
