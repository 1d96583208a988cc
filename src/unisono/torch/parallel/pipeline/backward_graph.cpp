#include "unisono/torch/parallel/pipeline/backward_graph.h"

#include <algorithm>
#include <cstddef>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

namespace unisono::parallel {

namespace autograd = ::torch::autograd;

BackwardGraph::BackwardGraph(const autograd::edge_list& roots, const Node* end) : end_(end) {
  for (const autograd::Edge& root : roots) {
    visit(root.function.get());
  }
}

autograd::edge_list BackwardGraph::parameters_beside(const Node& node) const {
  autograd::edge_list parameters;
  std::unordered_set<const Node*> seen;
  std::vector<autograd::Edge> open(node.next_edges().begin(), node.next_edges().end());
  while (!open.empty()) {
    const autograd::Edge edge = std::move(open.back());
    open.pop_back();
    if (!edge.is_valid() || leads_to_end(edge.function.get()) ||
        !seen.insert(edge.function.get()).second) {
      continue;
    }
    if (dynamic_cast<const autograd::AccumulateGrad*>(edge.function.get()) != nullptr) {
      parameters.emplace_back(edge.function, 0);
    }
    open.insert(open.end(), edge.function->next_edges().begin(), edge.function->next_edges().end());
  }
  return parameters;
}

// Depth first, without recursion: graphs are as deep as models are.
void BackwardGraph::visit(Node* root) {
  std::vector<std::pair<Node*, std::size_t>> path;
  const auto enter = [&](Node* node) {
    if (node != nullptr && leads_to_end_.emplace(node, node == end_).second) {
      path.emplace_back(node, 0);
    }
  };
  enter(root);
  while (!path.empty()) {
    auto& [node, n_done] = path.back();
    if (n_done < node->num_outputs()) {
      enter(node->next_edge(n_done++).function.get());
      continue;
    }
    Node* const finished = node;
    path.pop_back();
    const auto leads = [&](const autograd::Edge& edge) {
      return edge.is_valid() && leads_to_end_.at(edge.function.get());
    };
    leads_to_end_[finished] |= std::ranges::any_of(finished->next_edges(), leads);
    order_.push_back(finished);
  }
}

}  // namespace unisono::parallel
