#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any_value.h>
#include <torch/nn/pimpl.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/divided_model.h"

namespace unisono::parallel {

/// The dimension along which sequence parallelism divides activations: the first, as in torch::nn's
/// transformers.
inline constexpr std::int64_t kSequenceDim = 0;

/// Options of ColumnParallelLinear, equal on all ranks. `bias` adds a bias to the output.
struct ColumnParallelLinearOptions {
  std::int64_t in_features;   ///< Size of the whole layer.
  std::int64_t out_features;  ///< Size of the whole layer: a multiple of the number of ranks.
  bool bias = true;
  /// true: every rank receives all outputs. false: a rank receives its part, for example as the
  /// input of a RowParallelLinear.
  bool gather_output = true;
  /// The input is this rank's part of the sequence.
  bool sequence_parallel = false;
};

/// torch::nn::Linear with the outputs divided among the ranks: each rank has some rows of the
/// weight.
///
/// forward() and backward are collective operations. All ranks have the same input, or equally
/// large parts of the input. Initial values are drawn as in torch::nn::Linear, for the whole layer,
/// from `generator`, or from the generator of torch::manual_seed() if `generator` is undefined; all
/// ranks must use the same seed.
///
/// Holds the group. Not thread-safe, like torch::nn modules. Throws communication errors.
class ColumnParallelLinearImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) if the divided features are not divisible by the number of
  /// ranks.
  ColumnParallelLinearImpl(const ColumnParallelLinearOptions& to_use,
                           std::shared_ptr<ProcessGroup> group,
                           const at::Generator& generator = {});

  /// Throws RefusedCall for an input with another last dimension.
  at::Tensor forward(const at::Tensor& input);

  ColumnParallelLinearOptions options;
  at::Tensor weight;  ///< [out_features / ranks, in_features].
  at::Tensor bias;    ///< [out_features / ranks]; undefined without bias.
};

TORCH_MODULE(ColumnParallelLinear);

/// Options of RowParallelLinear, equal on all ranks. `bias` adds a bias to the output.
struct RowParallelLinearOptions {
  std::int64_t in_features;   ///< Size of the whole layer: a multiple of the number of ranks.
  std::int64_t out_features;  ///< Size of the whole layer.
  bool bias = true;
  /// true: the input is this rank's part of the features. false: the rank takes its part from the
  /// whole input.
  bool input_is_split = true;
  /// The output is this rank's part of the sequence; the bias then has a partial gradient.
  bool sequence_parallel = false;
};

/// torch::nn::Linear with the inputs divided among the ranks: each rank has some columns of the
/// weight, and every rank has the whole bias. Otherwise like ColumnParallelLinear.
class RowParallelLinearImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) if the divided features are not divisible by the number of
  /// ranks.
  RowParallelLinearImpl(const RowParallelLinearOptions& to_use,
                        std::shared_ptr<ProcessGroup> group,
                        const at::Generator& generator = {});

  /// Throws RefusedCall for an input with another last dimension.
  at::Tensor forward(const at::Tensor& input);

  RowParallelLinearOptions options;
  at::Tensor weight;  ///< [out_features, in_features / ranks].
  at::Tensor bias;    ///< [out_features]; undefined without bias.
};

TORCH_MODULE(RowParallelLinear);

/// Options of VocabParallelEmbedding, equal on all ranks.
struct VocabParallelEmbeddingOptions {
  std::int64_t num_embeddings;  ///< Size of the whole layer: a multiple of the number of ranks.
  std::int64_t embedding_dim;
  /// true: the output is this rank's part of the sequence. false: every rank receives the whole
  /// output.
  bool sequence_parallel = false;
};

/// torch::nn::Embedding with the rows divided among the ranks.
///
/// forward() is a collective operation with the same ids on all ranks. Initial values: as in
/// ColumnParallelLinear. Holds the group. Not thread-safe, like torch::nn modules.
class VocabParallelEmbeddingImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) if the size of the vocabulary is not divisible by the number of
  /// ranks.
  VocabParallelEmbeddingImpl(const VocabParallelEmbeddingOptions& to_use,
                             std::shared_ptr<ProcessGroup> group,
                             const at::Generator& generator = {});

  /// `ids` is an i64 or i32 tensor of any shape; the output has one more dimension.
  ///
  /// Throws RefusedCall for an id outside the vocabulary.
  at::Tensor forward(const at::Tensor& ids);

  VocabParallelEmbeddingOptions options;
  at::Tensor weight;  ///< [num_embeddings / ranks, embedding_dim].
};

TORCH_MODULE(VocabParallelEmbedding);

/// Options of ParallelLayerNorm, equal on all ranks.
struct ParallelLayerNormOptions {
  /// Size of the last dimension of the input.
  std::int64_t n_features;
  /// Added to the variance before the square root.
  double eps = 1e-5;
  /// The input is this rank's part of the sequence, so weight and bias have partial gradients.
  bool sequence_parallel = true;
};

/// torch::nn::LayerNorm of the last dimension, on a part of the sequence. Sends no messages:
/// sum_partial_gradients() completes the gradients. Not thread-safe, like torch::nn modules.
class ParallelLayerNormImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) for fewer than one feature.
  ParallelLayerNormImpl(const ParallelLayerNormOptions& to_use,
                        std::shared_ptr<ProcessGroup> group);

  /// Throws RefusedCall for an input with another last dimension.
  at::Tensor forward(const at::Tensor& input);

  ParallelLayerNormOptions options;
  at::Tensor weight;
  at::Tensor bias;
};

TORCH_MODULE(ParallelLayerNorm);

/// Options of ParallelSelfAttention, equal on all ranks. `bias` adds a bias to each projection.
struct ParallelSelfAttentionOptions {
  /// Size of the embedding of a position: a multiple of `num_heads`.
  std::int64_t embed_dim;
  std::int64_t num_heads;  ///< Heads of all ranks together: a multiple of the number of ranks.
  double dropout = 0;      ///< Dropout probability of the attention weights.
  bool bias = true;
  bool causal = false;  ///< Each position attends only to itself and earlier positions.
  /// Input and output are this rank's part of the sequence.
  bool sequence_parallel = false;
};

/// Masked positions of attention, in addition to options.causal.
struct AttentionMasks {
  /// [sequence, sequence]: bool, true if row i must not attend to column j; or numbers that are
  /// added to the scores.
  at::Tensor attention = {};
  /// bool[batch, sequence]: true for positions that are excluded for all rows.
  at::Tensor padding = {};
};

/// torch::nn::MultiheadAttention for self-attention, with the heads divided among the ranks. Names,
/// whole shapes and initial values of the parameters equal those of the torch::nn module; see
/// ColumnParallelLinear.
///
/// Dropout is the same on any number of ranks: see drop_in_slices(). Holds the group. Not
/// thread-safe, like torch::nn modules.
class ParallelSelfAttentionImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) if the number of heads is not divisible by the number of ranks,
  /// or embed_dim by the number of heads.
  ParallelSelfAttentionImpl(const ParallelSelfAttentionOptions& to_use,
                            std::shared_ptr<ProcessGroup> group,
                            const at::Generator& generator = {});

  /// Input and output are [sequence, batch, embed_dim]. A collective operation.
  ///
  /// Throws RefusedCall for an input or masks of wrong shapes.
  at::Tensor forward(const at::Tensor& input, const AttentionMasks& masks = {});

  ParallelSelfAttentionOptions options;
  at::Tensor in_proj_weight;  ///< [3 * embed_dim / ranks, embed_dim]: queries, keys, values.
  at::Tensor in_proj_bias;    ///< [3 * embed_dim / ranks]; undefined without bias.
  RowParallelLinear out_proj{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMasks())})

 private:
  void check(const at::Tensor& input, const AttentionMasks& masks) const;
  [[nodiscard]] at::Tensor masked(at::Tensor scores, const AttentionMasks& masks) const;

  std::int64_t n_heads_;  // heads of this rank
};

TORCH_MODULE(ParallelSelfAttention);

/// Function between the two linear layers of the feed-forward part.
enum class Activation : std::uint8_t { kRelu, kGelu };

/// Options of ParallelTransformerEncoderLayer, equal on all ranks.
struct ParallelTransformerEncoderLayerOptions {
  /// Size of the embedding of a position.
  std::int64_t d_model;
  std::int64_t nhead;                   ///< A multiple of the number of ranks.
  std::int64_t dim_feedforward = 2048;  ///< A multiple of the number of ranks.
  /// Dropout probability after attention and feed-forward part.
  double dropout = 0.1;
  /// Function between the two linear layers.
  Activation activation = Activation::kRelu;
  /// Norms come before attention and feedforward instead of after them.
  bool norm_first = false;
  bool causal = false;
  /// Input and output are this rank's part of the sequence, as are all activations that are not
  /// divided by heads or features: norms, dropout, sums.
  bool sequence_parallel = false;
};

/// torch::nn::TransformerEncoderLayer divided among the ranks: attention by heads, feedforward by
/// features. Names, whole shapes and initial values of the parameters equal those of the torch::nn
/// module. With sequence_parallel, call sum_partial_gradients() before each optimizer step.
///
/// Forward and backward send two all_reduces of activations each; with sequence_parallel, two
/// all_gathers and two reduce_scatters, which move as many bytes. Holds the group. Not thread-safe,
/// like torch::nn modules.
class ParallelTransformerEncoderLayerImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) under the conditions of the contained layers.
  ParallelTransformerEncoderLayerImpl(const ParallelTransformerEncoderLayerOptions& to_use,
                                      std::shared_ptr<ProcessGroup> group,
                                      const at::Generator& generator = {});

  /// Input and output are [sequence, batch, d_model]. A collective operation.
  at::Tensor forward(const at::Tensor& input, const AttentionMasks& masks = {});

  ParallelTransformerEncoderLayerOptions options;
  ParallelSelfAttention self_attn{nullptr};
  ColumnParallelLinear linear1{nullptr};
  RowParallelLinear linear2{nullptr};
  ParallelLayerNorm norm1{nullptr};
  ParallelLayerNorm norm2{nullptr};

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(AttentionMasks())})

 private:
  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& input, std::uint64_t seed);
  // Dropout of activations that are not divided by features. `place` distinguishes the dropouts of
  // a layer.
  [[nodiscard]] at::Tensor drop(const at::Tensor& tensor, std::uint64_t seed, int place) const;
};

TORCH_MODULE(ParallelTransformerEncoderLayer);

}  // namespace unisono::parallel
