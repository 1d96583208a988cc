#include "unisono/torch/parallel/pipeline/split_backward.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "unisono/torch/parallel/pipeline/backward_graph.h"
#include "unisono/torch/parallel/pipeline/product_memory.h"
#include "unisono/torch/parallel/pipeline/weight_products.h"

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

// A node keeps nothing once it has run.
class LetGo : public autograd::FunctionPostHook {
 public:
  explicit LetGo(Node& node) : node_(node) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& /*inputs*/) override {
    node_.release_variables();
    return outputs;
  }

 private:
  Node& node_;
};

// Runs the part of the graph that leads from `roots` to `ends`, and has these take up gradients.
void run(const autograd::edge_list& roots,
         const autograd::variable_list& gradients,
         const autograd::edge_list& ends,
         bool keeps_graph) {
  autograd::Engine::get_default_engine().execute(
      roots, gradients, keeps_graph, /*create_graph=*/false, /*accumulate_grad=*/true, ends);
}

}  // namespace

SplitBackward::SplitBackward(autograd::edge_list roots,
                             std::vector<at::Tensor> gradients,
                             const c10::intrusive_ptr<InputGradients>& end)
    : roots_(std::move(roots)), gradients_(std::move(gradients)) {
  const BackwardGraph graph(roots_, end.get());
  find_starts(graph, end.get());
  if (!leads_to_end_) {
    return;
  }
  if (!is_whole_) {
    let_go_of_rest(graph);
  }
  run(roots_, gradients_, {{end, 0}}, /*keeps_graph=*/true);
  if (!is_whole_) {
    gradients_.clear();
  }
}

// Of what the pass has kept, the second half needs only what starts have.
void SplitBackward::let_go_of_rest(const BackwardGraph& graph) const {
  std::unordered_set<const Node*> starts;
  for (const Start& start : starts_) {
    starts.insert(start.node.get());
  }
  for (Node* const node : graph.nodes()) {
    if (graph.leads_to_end(node) && !starts.contains(node)) {
      node->add_post_hook(std::make_unique<LetGo>(*node));
    }
  }
}

void SplitBackward::find_starts(const BackwardGraph& graph, Node* end) {
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
  products_ = find_weight_products(graph);
  for (const Start& start : starts_) {
    start.node->add_pre_hook(std::make_unique<KeepGradients>(start.gradients));
  }
}

void SplitBackward::add_weight_gradients(WeightSums& sums) {
  keep_addable(products_, sums);
  if (is_whole_) {
    if (!parameters_.empty()) {
      run_with_products(roots_, gradients_, parameters_, products_);
    }
    return;
  }
  // From the outputs on, as a whole pass does it.
  for (auto start = starts_.rbegin(); start != starts_.rend(); ++start) {
    if (!start->gradients->empty()) {
      add_weight_gradients_of(*start);
    }
  }
}

void SplitBackward::add_weight_gradients_of(Start& start) {
  for (const WeightProduct& product : products_) {
    if (product.node == start.node.get()) {
      add(product, start.gradients->at(0));
      std::erase_if(start.parameters, [&](const autograd::Edge& parameter) {
        return parameter.function.get() == product.weight;
      });
    }
  }
  if (start.parameters.empty()) {
    return;
  }
  autograd::edge_list roots;
  for (std::uint32_t i = 0; i < start.gradients->size(); ++i) {
    roots.emplace_back(start.node, i);
  }
  run(roots, *start.gradients, start.parameters, /*keeps_graph=*/false);
}

}  // namespace unisono::parallel
