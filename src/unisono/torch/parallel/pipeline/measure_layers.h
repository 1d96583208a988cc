#pragma once

#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include "unisono/pipeline/layer_costs.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

namespace unisono::parallel {

/// Options of measure_layers().
struct LayerMeasurement {
  /// Number of forward and backward passes of the chunk, for each of the two kinds of backward.
  int trials = 5;
  /// Loss of the last layer's output; the time of the loss counts for that layer. Null: no loss.
  std::function<at::Tensor(const at::Tensor& output)> loss = {};
};

/// Measures the costs of each layer for a chunk on this machine, computed as in a stage of a
/// Pipeline: medians of the trials in milliseconds, and MiB. `chunk` has the inputs of the first
/// layer, in the sizes of a chunk of a step. pipeline::to_csv() writes the result for `unisono plan
/// pipeline --layer-times`.
///
/// Backward is measured in one pass, and the share of weight gradients in two passes. Activations
/// are the memory that a layer adds until the chunk's backward, without memory that the next layer
/// frees (0 while a profiler of LibTorch runs).
///
/// The mode, values and gradients of the model and the state of the random generator are restored.
/// Runs on the calling thread with the thread's compute threads, and is not collective. Ranks that
/// share a machine should measure at the same time, because training computes on all ranks at the
/// same time.
///
/// The cost is 2 * (trials + 1) passes, and memory for all gradients and for one chunk's
/// activations in the whole model. Throws Error(kInvalidArgument) without trials, layers or inputs,
/// and for an exception of a layer, with the layer's name.
[[nodiscard]] pipeline::LayerCosts measure_layers(const torch::nn::Sequential& model,
                                                  const Tensors& chunk,
                                                  const LayerMeasurement& options = {});

}  // namespace unisono::parallel
