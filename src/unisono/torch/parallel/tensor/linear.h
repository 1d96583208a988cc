#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {

/// The dimension along which sequence parallelism divides activations: as in torch::nn's
/// transformers, those of a sequence lie in the first.
inline constexpr std::int64_t kSequenceDim = 0;

struct ColumnParallelLinearOptions {
  std::int64_t in_features;   ///< Of the whole layer.
  std::int64_t out_features;  ///< Of the whole layer: a multiple of the ranks.
  bool bias = true;
  /// Every rank gets all outputs; else its part of them, for a RowParallelLinear, say.
  bool gather_output = true;
  /// The input is this rank's part of the sequence.
  bool sequence_parallel = false;
};

/// torch::nn::Linear whose outputs are divided among the ranks: each has some rows of the weight.
///
/// forward() and backward are collective operations; all ranks have the same input, or parts of
/// equal size of one. First values are those of torch::nn::Linear, drawn whole from `generator`,
/// or from that of torch::manual_seed() if it is undefined: seeded alike on all ranks.
class ColumnParallelLinearImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) for features that the ranks can't divide equally.
  ColumnParallelLinearImpl(const ColumnParallelLinearOptions& to_use,
                           std::shared_ptr<ProcessGroup> group,
                           const at::Generator& generator = {});

  /// Throws RefusedCall for an input that does not fit.
  at::Tensor forward(const at::Tensor& input);

  ColumnParallelLinearOptions options;
  at::Tensor weight;  ///< [out_features / ranks, in_features]
  at::Tensor bias;    ///< [out_features / ranks]; undefined without.
};

TORCH_MODULE(ColumnParallelLinear);

struct RowParallelLinearOptions {
  std::int64_t in_features;   ///< Of the whole layer: a multiple of the ranks.
  std::int64_t out_features;  ///< Of the whole layer.
  bool bias = true;
  /// The input is this rank's part of the features; else each rank takes it of all.
  bool input_is_split = true;
  /// The output is this rank's part of the sequence; the bias then has a partial gradient.
  bool sequence_parallel = false;
};

/// torch::nn::Linear whose inputs are divided among the ranks: each has some columns of the weight,
/// and all have the bias. Otherwise as ColumnParallelLinear.
class RowParallelLinearImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) for features that the ranks can't divide equally.
  RowParallelLinearImpl(const RowParallelLinearOptions& to_use,
                        std::shared_ptr<ProcessGroup> group,
                        const at::Generator& generator = {});

  /// Throws RefusedCall for an input that does not fit.
  at::Tensor forward(const at::Tensor& input);

  RowParallelLinearOptions options;
  at::Tensor weight;  ///< [out_features, in_features / ranks]
  at::Tensor bias;    ///< [out_features]; undefined without.
};

TORCH_MODULE(RowParallelLinear);

}  // namespace unisono::parallel
