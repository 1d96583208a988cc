#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/transfers.h"
#include "unisono/torch/parallel/pipeline/weight_products.h"

namespace unisono::parallel {

/// A backward pass in two halves: first the gradients of the inputs, later the gradients of the
/// parameters. Owned by a StagePass; used on the thread of the step.
///
/// A node on the way to the inputs that also leads to parameters (a linear layer) stores the node's
/// gradient in the first half. The second half starts at each of these nodes and repeats no
/// computation. If a parameter belongs to several such nodes, the graph adds the gradients before
/// the parameter; the second half is then a full pass from the outputs, for equal bits.
class SplitBackward {
 public:
  /// Computes the gradients of the inputs, from `roots` to `end`. `end` may be null: no input needs
  /// a gradient.
  SplitBackward(torch::autograd::edge_list roots,
                std::vector<at::Tensor> gradients,
                const c10::intrusive_ptr<InputGradients>& end);

  /// Adds the gradients of the parameters. Called once.
  void add_weight_gradients(WeightSums& sums);

 private:
  /// A node that leads to parameters, and its stored gradients.
  struct Start {
    c10::intrusive_ptr<torch::autograd::Node> node;
    torch::autograd::edge_list parameters;
    std::shared_ptr<torch::autograd::variable_list> gradients;
  };

  void find_starts(const BackwardGraph& graph, torch::autograd::Node* end);
  void release_rest(const BackwardGraph& graph) const;
  void add_weight_gradients_of(Start& start);

  torch::autograd::edge_list roots_;
  std::vector<at::Tensor> gradients_;
  std::vector<Start> starts_;
  torch::autograd::edge_list parameters_;  // All parameters of the graph.
  std::vector<WeightProduct> products_;
  bool leads_to_end_ = false;
  bool is_whole_ = false;  // The second half starts at the roots.
};

/// Returns the loss of the last stage's outputs.
using LossOfOutputs = std::function<at::Tensor(const Tensors& outputs)>;

/// A chunk in a stage, from the forward pass until the gradients are complete. Owned by a StepRun;
/// used on the thread of the step. Throws Error for a stage that returns wrong outputs, and the
/// exceptions of layers.
class StagePass {
 public:
  struct Options {
    ChunkRandom random;
    bool is_checkpointed;
    LossOfOutputs loss = {};  ///< Null except in the last stage.
  };

  /// Runs the forward pass. `inputs` have no graph.
  StagePass(const StagePart& stage, StageMessage inputs, Options options);

  /// Returns the outputs, without a graph. Called once.
  [[nodiscard]] StageMessage take_outputs() { return std::exchange(outputs_, {}); }

  /// The loss of the chunk, a tensor of one element, defined in the last stage of a training step.
  /// On a device the computation may be in progress.
  [[nodiscard]] const at::Tensor& loss() const { return loss_; }

  /// Returns the gradient of a loss that counts `weight` times.
  [[nodiscard]] at::Tensor gradient_of_loss(double weight) const;

  /// Runs the backward pass and adds to the parameters' gradients. `gradients` holds one tensor for
  /// each output, undefined for an output without a gradient; in the last stage the vector holds
  /// the gradient of the loss.
  void backward(const Tensors& gradients, WeightSums& sums);

  // The two halves of backward(), in this order.
  void backward_inputs(const Tensors& gradients);
  void backward_weights(WeightSums& sums);

  /// Returns a gradient for each input, undefined for an unused input. Valid after backward() or
  /// backward_inputs().
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
  StageMessage inputs_;
  Options options_;
  std::vector<std::int64_t> versions_;  // Versions of the inputs of a checkpointed pass.
  c10::intrusive_ptr<InputGradients> end_;
  // Graph edges of the outputs, or of the loss in the last stage. The values are not kept.
  torch::autograd::edge_list roots_;
  StageMessage outputs_;
  std::vector<std::int64_t> sizes_of_loss_;
  at::TensorOptions of_loss_;
  at::Tensor loss_;
  std::optional<SplitBackward> split_;
};

}  // namespace unisono::parallel
