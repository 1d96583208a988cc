#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/pimpl.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/parallel/tensor/layers.h"

namespace unisono::testing {

/// Sizes of the models below: small enough for each test and divisible among four ranks.
inline constexpr std::int64_t kVocabulary = 16;
inline constexpr std::int64_t kModelSize = 8;
inline constexpr std::int64_t kHeads = 4;
inline constexpr std::int64_t kLength = 8;

/// Returns deterministic numbers from -1 to 1 without an obvious pattern, equal on all ranks.
[[nodiscard]] at::Tensor wave(at::IntArrayRef sizes, double frequency = 0.7);

/// [kLength, batch]: ids, and the ids to predict.
struct Text {
  at::Tensor ids;
  at::Tensor targets;
};

[[nodiscard]] Text make_text(int step, std::int64_t batch);

/// Returns the mask that hides positions in torch::nn's attention, which adds a mask of bools as
/// numbers.
[[nodiscard]] at::Tensor hiding_mask(const at::Tensor& is_hidden);

/// A transformer of torch::nn's layers without dropout.
struct WholeTransformerImpl : torch::nn::Module {
  WholeTransformerImpl();
  at::Tensor forward(const at::Tensor& ids);
  at::Tensor loss(const Text& text);

  torch::nn::Embedding embedding{nullptr};
  torch::nn::TransformerEncoderLayer first{nullptr};
  torch::nn::TransformerEncoderLayer second{nullptr};
  torch::nn::Linear head{nullptr};
};

TORCH_MODULE(WholeTransformer);

/// A transformer like WholeTransformer, divided among ranks.
struct DividedTransformerImpl : torch::nn::Module {
  explicit DividedTransformerImpl(const std::shared_ptr<ProcessGroup>& to_use,
                                  bool sequence_parallel,
                                  double dropout = 0);
  /// Returns this rank's part of the logits.
  at::Tensor forward(const at::Tensor& ids);
  at::Tensor loss(const Text& text);

  std::shared_ptr<ProcessGroup> group;
  parallel::VocabParallelEmbedding embedding{nullptr};
  parallel::ParallelTransformerEncoderLayer first{nullptr};
  parallel::ParallelTransformerEncoderLayer second{nullptr};
  parallel::ColumnParallelLinear head{nullptr};
};

TORCH_MODULE(DividedTransformer);

/// Returns the model in double precision. make_divided() gives each rank its part of these values.
[[nodiscard]] WholeTransformer make_whole();
[[nodiscard]] DividedTransformer make_divided(const std::shared_ptr<ProcessGroup>& group,
                                              bool sequence_parallel,
                                              double dropout = 0);

/// Returns the gradients of a module's parameters by name.
[[nodiscard]] TensorState gradients_of(const torch::nn::Module& whole);

/// Returns the whole gradients of a module that is divided among ranks.
[[nodiscard]] TensorState gather_gradients(const torch::nn::Module& divided);

/// Expects equality within 1e-9 of the largest expected element.
void expect_close(const at::Tensor& actual, const at::Tensor& expected);
void expect_close(const TensorState& actual, const TensorState& expected);

}  // namespace unisono::testing
