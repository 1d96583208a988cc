#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include "unisono/torch/parallel/pipeline/inbox.h"
#include "unisono/torch/parallel/pipeline/input_gradients.h"
#include "unisono/torch/parallel/pipeline/product_memory.h"
#include "unisono/torch/parallel/pipeline/split_backward.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"

namespace unisono::parallel {

/// What the last stage does with its outputs: their loss.
using LossOfOutputs = std::function<at::Tensor(const Tensors& outputs)>;

/// A chunk in a stage, from its forward until its gradients are done.
class StagePass {
 public:
  struct Options {
    ChunkRandom random;
    bool is_checkpointed;
    LossOfOutputs loss = {};  ///< Of the last stage only.
  };

  /// Runs the stage. `inputs` have no graph.
  StagePass(const StagePart& stage, Delivery inputs, Options options);

  /// Without a graph.
  [[nodiscard]] Delivery take_outputs() { return std::exchange(outputs_, {}); }

  /// Of the last stage.
  [[nodiscard]] double loss() const { return loss_; }

  /// Of a loss that counts `weight` times.
  [[nodiscard]] at::Tensor gradient_of_loss(double weight) const;

  /// Adds to the parameters' gradients, given those of the outputs: one for each, undefined for
  /// none. Of the last stage the one of the loss.
  void backward(const Tensors& gradients, WeightSums& sums);

  // The same in two halves.
  void backward_inputs(const Tensors& gradients);
  void backward_weights(WeightSums& sums);

  /// After backward() or backward_inputs(): one for each input, undefined where there is none.
  [[nodiscard]] Tensors input_gradients() const;

 private:
  struct Roots {
    torch::autograd::edge_list edges;
    Tensors gradients;
  };

  Tensors forward_keeping_inputs();
  void run_with_graph();
  void run_again();
  void keep_outputs(const Tensors& outputs);
  void keep_roots(const Tensors& outputs);
  at::Tensor compute_loss(const Tensors& outputs);
  Roots take_roots(const Tensors& gradients);

  const StagePart& stage_;
  Delivery inputs_;
  Options options_;
  std::vector<std::int64_t> versions_;  // Of the inputs of a pass that is to run again.
  c10::intrusive_ptr<InputGradients> end_;
  // Of each output; of the last stage, of the loss. Without the values, which may be large.
  torch::autograd::edge_list roots_;
  Delivery outputs_;
  std::vector<std::int64_t> sizes_of_loss_;
  at::TensorOptions of_loss_;
  double loss_ = 0;
  std::optional<SplitBackward> split_;
};

}  // namespace unisono::parallel
