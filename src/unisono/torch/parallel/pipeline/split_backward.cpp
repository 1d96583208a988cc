#include "unisono/torch/parallel/pipeline/split_backward.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace unisono::parallel {
namespace {

namespace autograd = ::torch::autograd;
using autograd::Node;

class KeepGradients : public autograd::FunctionPreHook {
 public:
  explicit KeepGradients(std::shared_ptr<autograd::variable_list> kept) : kept_(std::move(kept)) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    *kept_ = gradients;
    return gradients;
  }

 private:
  std::shared_ptr<autograd::variable_list> kept_;
};

// What a graph's nodes lead to.
class Graph {
 public:
  Graph(const autograd::edge_list& roots, const Node* end) : end_(end) {
    for (const autograd::Edge& root : roots) {
      visit(root.function.get());
    }
  }

  // Each after those that it leads to.
  [[nodiscard]] const std::vector<Node*>& nodes() const { return order_; }

  [[nodiscard]] bool leads_to_end(const Node* node) const { return leads_to_end_.at(node); }

  // The parameters that `node` leads to, its ways to the end left out.
  [[nodiscard]] autograd::edge_list parameters_beside(const Node& node) const {
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
      open.insert(
          open.end(), edge.function->next_edges().begin(), edge.function->next_edges().end());
    }
    return parameters;
  }

 private:
  // Depth first, without recursion: graphs are as deep as models are.
  void visit(Node* root) {
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

  const Node* end_;
  std::unordered_map<const Node*, bool> leads_to_end_;
  std::vector<Node*> order_;
};

autograd::edge_list edges_of(const std::vector<at::Tensor>& tensors) {
  autograd::edge_list edges;
  for (const at::Tensor& tensor : tensors) {
    edges.push_back(autograd::impl::gradient_edge(tensor));
  }
  return edges;
}

// Runs the part of the graph that leads from `roots` to `ends`, and has these take up gradients.
void run(const autograd::edge_list& roots,
         const autograd::variable_list& gradients,
         const autograd::edge_list& ends,
         bool keeps_graph) {
  autograd::Engine::get_default_engine().execute(
      roots, gradients, keeps_graph, /*create_graph=*/false, /*accumulate_grad=*/true, ends);
}

}  // namespace

SplitBackward::SplitBackward(std::vector<at::Tensor> roots,
                             std::vector<at::Tensor> gradients,
                             const c10::intrusive_ptr<InputGradients>& end)
    : roots_(std::move(roots)), gradients_(std::move(gradients)) {
  find_starts(end.get());
  if (!leads_to_end_) {
    return;
  }
  run(edges_of(roots_), gradients_, {{end, 0}}, /*keeps_graph=*/true);
  if (!is_whole_) {
    gradients_.clear();
  }
}

void SplitBackward::find_starts(Node* end) {
  const autograd::edge_list roots = edges_of(roots_);
  const Graph graph(roots, end);
  leads_to_end_ = std::ranges::any_of(graph.nodes(), [&](const Node* node) { return node == end; });
  std::unordered_set<const Node*> begun;
  for (Node* const node : graph.nodes()) {
    if (dynamic_cast<const autograd::AccumulateGrad*>(node) != nullptr) {
      parameters_.emplace_back(node->getptr(), 0);
    }
    if (!graph.leads_to_end(node)) {
      continue;
    }
    autograd::edge_list parameters = graph.parameters_beside(*node);
    if (parameters.empty()) {
      continue;
    }
    for (const autograd::Edge& parameter : parameters) {
      is_whole_ = !begun.insert(parameter.function.get()).second || is_whole_;
    }
    starts_.push_back({.node = node->getptr(),
                       .parameters = std::move(parameters),
                       .gradients = std::make_shared<autograd::variable_list>()});
  }
  // Parameters that are on no way to the inputs hang from the roots alone.
  is_whole_ = is_whole_ || begun.size() < parameters_.size();
  if (is_whole_) {
    starts_.clear();
  }
  for (const Start& start : starts_) {
    start.node->add_pre_hook(std::make_unique<KeepGradients>(start.gradients));
  }
}

void SplitBackward::add_weight_gradients() {
  if (is_whole_) {
    if (!parameters_.empty()) {
      run(edges_of(roots_), gradients_, parameters_, /*keeps_graph=*/false);
    }
    return;
  }
  // From the outputs on, as a whole pass does it.
  for (auto start = starts_.rbegin(); start != starts_.rend(); ++start) {
    if (start->gradients->empty()) {
      continue;
    }
    autograd::edge_list roots;
    for (std::uint32_t i = 0; i < start->gradients->size(); ++i) {
      roots.emplace_back(start->node, i);
    }
    run(roots, *start->gradients, start->parameters, /*keeps_graph=*/false);
  }
}

}  // namespace unisono::parallel
