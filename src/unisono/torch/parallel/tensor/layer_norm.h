#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace unisono::parallel {

struct ParallelLayerNormOptions {
  std::int64_t n_features;
  double eps = 1e-5;
  /// The input is this rank's part of the sequence, and so weight and bias have partial gradients.
  bool sequence_parallel = true;
};

/// torch::nn::LayerNorm of the last dimension, on a part of the sequence. Sends nothing: its
/// gradients are for sum_partial_gradients().
class ParallelLayerNormImpl : public torch::nn::Module, public ParallelLayer {
 public:
  /// Throws Error(kInvalidArgument) for no features.
  ParallelLayerNormImpl(const ParallelLayerNormOptions& to_use,
                        std::shared_ptr<ProcessGroup> group);

  /// Throws RefusedCall for an input that does not fit.
  at::Tensor forward(const at::Tensor& input);

  ParallelLayerNormOptions options;
  at::Tensor weight;
  at::Tensor bias;
};

TORCH_MODULE(ParallelLayerNorm);

}  // namespace unisono::parallel
