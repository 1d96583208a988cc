#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

namespace unisono::parallel {

/// The nodes that a backward pass from some roots comes to.
class BackwardGraph {
 public:
  using Node = torch::autograd::Node;

  /// `end`: one of them, or null.
  BackwardGraph(const torch::autograd::edge_list& roots, const Node* end);

  /// Each after those that it leads to.
  [[nodiscard]] const std::vector<Node*>& nodes() const { return order_; }

  [[nodiscard]] bool leads_to_end(const Node* node) const { return leads_to_end_.at(node); }

  /// The parameters that `node` leads to, its ways to the end left out.
  [[nodiscard]] torch::autograd::edge_list parameters_beside(const Node& node) const;

 private:
  void visit(Node* root);

  const Node* end_;
  std::unordered_map<const Node*, bool> leads_to_end_;
  std::vector<Node*> order_;
};

}  // namespace unisono::parallel
