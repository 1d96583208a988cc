#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include "unisono/torch/parallel/pipeline/backward_graph.h"
#include "unisono/torch/parallel/pipeline/input_gradients.h"
#include "unisono/torch/parallel/pipeline/product_memory.h"
#include "unisono/torch/parallel/pipeline/weight_products.h"

namespace unisono::parallel {

/// A backward pass in two halves: the gradients of the inputs, later those of the parameters.
///
/// A node on the way to the inputs that has parameters beside it (of a linear layer, say) keeps the
/// gradient that comes to it in the first half. The second half begins at these nodes, each by
/// itself, so it computes nothing again. Where a parameter belongs to several such nodes, whose
/// gradients the graph adds up before they reach it, the second half is a pass of its own from the
/// outputs, for the same bits.
class SplitBackward {
 public:
  /// Computes the inputs' gradients of the graph from `roots` to `end`, which may be null: none.
  SplitBackward(torch::autograd::edge_list roots,
                std::vector<at::Tensor> gradients,
                const c10::intrusive_ptr<InputGradients>& end);

  /// Adds the gradients to the parameters', once.
  void add_weight_gradients(WeightSums& sums);

 private:
  /// A node that has parameters beside it, and what came to it.
  struct Start {
    c10::intrusive_ptr<torch::autograd::Node> node;
    torch::autograd::edge_list parameters;
    std::shared_ptr<torch::autograd::variable_list> gradients;
  };

  void find_starts(const BackwardGraph& graph, torch::autograd::Node* end);
  void let_go_of_rest(const BackwardGraph& graph) const;
  void add_weight_gradients_of(Start& start);

  torch::autograd::edge_list roots_;
  std::vector<at::Tensor> gradients_;
  std::vector<Start> starts_;
  torch::autograd::edge_list parameters_;  // All of the graph.
  std::vector<WeightProduct> products_;
  bool leads_to_end_ = false;
  bool is_whole_ = false;  // The second half begins at the roots.
};

}  // namespace unisono::parallel
