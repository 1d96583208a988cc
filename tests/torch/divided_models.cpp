#include "divided_models.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/parallel/tensor/functions.h"

namespace unisono::testing {
namespace {

constexpr std::int64_t kFeedForward = 16;
constexpr std::uint64_t kSeed = 7;
constexpr double kTolerance = 1e-9;

}  // namespace

at::Tensor wave(at::IntArrayRef sizes, double frequency) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) {
    count *= size;
  }
  return (torch::arange(1, count + 1, torch::kDouble) * frequency).sin().view(sizes);
}

Text make_text(int step, std::int64_t batch) {
  const at::Tensor ids =
      (torch::arange(kLength * batch, torch::kLong) * 5 + step * 3).square().remainder(kVocabulary);
  return {.ids = ids.view({kLength, batch}),
          .targets = ids.flip(0).add(step).remainder(kVocabulary).view({kLength, batch})};
}

at::Tensor hiding_mask(const at::Tensor& is_hidden) {
  return torch::zeros(is_hidden.sizes(), torch::kDouble)
      .masked_fill_(is_hidden, -std::numeric_limits<double>::infinity());
}

WholeTransformerImpl::WholeTransformerImpl() {
  const auto options = torch::nn::TransformerEncoderLayerOptions(kModelSize, kHeads)
                           .dim_feedforward(kFeedForward)
                           .dropout(0);
  embedding = register_module("embedding", torch::nn::Embedding(kVocabulary, kModelSize));
  first = register_module("first", torch::nn::TransformerEncoderLayer(options));
  second = register_module("second", torch::nn::TransformerEncoderLayer(options));
  head = register_module("head", torch::nn::Linear(kModelSize, kVocabulary));
}

at::Tensor WholeTransformerImpl::forward(const at::Tensor& ids) {
  const at::Tensor mask =
      hiding_mask(torch::ones({ids.size(0), ids.size(0)}, torch::kBool).triu(1));
  return head(second(first(embedding(ids), mask), mask));
}

at::Tensor WholeTransformerImpl::loss(const Text& text) {
  return torch::nn::functional::cross_entropy(forward(text.ids).flatten(0, 1),
                                              text.targets.flatten());
}

DividedTransformerImpl::DividedTransformerImpl(const std::shared_ptr<ProcessGroup>& to_use,
                                               bool sequence_parallel,
                                               double dropout)
    : group(to_use) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(kSeed);
  const parallel::ParallelTransformerEncoderLayerOptions layer{
      .d_model = kModelSize,
      .nhead = kHeads,
      .dim_feedforward = kFeedForward,
      .dropout = dropout,
      .causal = true,
      .sequence_parallel = sequence_parallel};
  embedding = register_module(
      "embedding",
      parallel::VocabParallelEmbedding(
          parallel::VocabParallelEmbeddingOptions{.num_embeddings = kVocabulary,
                                                  .embedding_dim = kModelSize,
                                                  .sequence_parallel = sequence_parallel},
          group,
          generator));
  first =
      register_module("first", parallel::ParallelTransformerEncoderLayer(layer, group, generator));
  second =
      register_module("second", parallel::ParallelTransformerEncoderLayer(layer, group, generator));
  head = register_module(
      "head",
      parallel::ColumnParallelLinear(
          parallel::ColumnParallelLinearOptions{.in_features = kModelSize,
                                                .out_features = kVocabulary,
                                                .gather_output = false,
                                                .sequence_parallel = sequence_parallel},
          group,
          generator));
}

at::Tensor DividedTransformerImpl::forward(const at::Tensor& ids) {
  return head(second(first(embedding(ids))));
}

at::Tensor DividedTransformerImpl::loss(const Text& text) {
  return parallel::vocab_parallel_cross_entropy(forward(text.ids), text.targets, group);
}

WholeTransformer make_whole() {
  torch::manual_seed(kSeed);
  WholeTransformer model;
  model->to(torch::kDouble);
  return model;
}

DividedTransformer make_divided(const std::shared_ptr<ProcessGroup>& group,
                                bool sequence_parallel,
                                double dropout) {
  DividedTransformer model(group, sequence_parallel, dropout);
  model->to(torch::kDouble);
  return model;
}

TensorState gradients_of(const torch::nn::Module& whole) {
  TensorState gradients;
  for (const auto& parameter : whole.named_parameters()) {
    gradients.emplace(parameter.key(), parameter.value().grad());
  }
  return gradients;
}

TensorState gather_gradients(const torch::nn::Module& divided) {
  std::vector<parallel::PlacedTensor> placed = parallel::placed_parameters(divided);
  for (parallel::PlacedTensor& parameter : placed) {
    parameter.tensor = parameter.tensor.grad();
  }
  return parallel::gather_state(placed);
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected) {
  ASSERT_EQ(actual.sizes(), expected.sizes());
  EXPECT_LE((actual - expected).abs().max().item<double>(),
            kTolerance * expected.abs().max().item<double>());
}

void expect_close(const TensorState& actual, const TensorState& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(actual.contains(name));
    expect_close(actual.at(name), tensor);
  }
}

}  // namespace unisono::testing
