#pragma once

#include <functional>

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/sequential.h>

#include "unisono/pipeline/layer_costs.h"
#include "unisono/torch/parallel/pipeline/stage.h"

namespace unisono::parallel {

struct LayerMeasurement {
  /// How often the chunk goes through the model, there and back, in either way of doing backward.
  int trials = 5;
  /// Of the last layer's output, as in a step; its time is that layer's. Default: none.
  std::function<at::Tensor(const at::Tensor& output)> loss = {};
};

/// What each layer of the model takes for one chunk on this machine, as a stage of a Pipeline
/// computes it: milliseconds, medians of the trials, and MiB. `chunk` has the inputs of the first
/// layer, of the sizes that a chunk of a step has. pipeline::to_csv() makes the file of it that
/// `unisono plan pipeline --layer-times` reads.
///
/// Backward is measured in one pass; the part of it that the gradients of weights take, in two.
/// Activations are what a layer adds to what the chunk keeps until its backward; what the next
/// layer lets go of is not among them. (0 where a profiler of LibTorch's runs.)
///
/// In the mode that train() and eval() have set. Leaves the model, its gradients and the program's
/// random numbers as they were. Runs on the calling thread, with its compute threads, and no other
/// rank takes part: where ranks share a machine, they measure best all at once, as they compute.
///
/// Takes 2 * (trials + 1) passes, and the memory of all gradients and of one chunk's activations in
/// the whole model. Throws Error(kInvalidArgument) for no trials, layers or inputs, and, with the
/// layer, for what a layer throws.
[[nodiscard]] pipeline::LayerCosts measure_layers(const torch::nn::Sequential& model,
                                                  const Tensors& chunk,
                                                  const LayerMeasurement& options = {});

}  // namespace unisono::parallel
