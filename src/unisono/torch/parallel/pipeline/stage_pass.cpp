#include "unisono/torch/parallel/pipeline/stage_pass.h"

#include <algorithm>
#include <string>
#include <unordered_set>

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/autograd/variable.h>

#include "unisono/base/error.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

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

// Frees the saved variables of a node after the node has run.
class ReleaseNode : public autograd::FunctionPostHook {
 public:
  explicit ReleaseNode(Node& node) : node_(node) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& /*inputs*/) override {
    node_.release_variables();
    return outputs;
  }

 private:
  Node& node_;
};

// Runs the part of the graph from `roots` to `ends`; the ends accumulate gradients.
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
    release_rest(graph);
  }
  run(roots_, gradients_, {{end, 0}}, /*keeps_graph=*/true);
  if (!is_whole_) {
    gradients_.clear();
  }
}

// The second half needs only the saved variables of the start nodes.
void SplitBackward::release_rest(const BackwardGraph& graph) const {
  std::unordered_set<const Node*> starts;
  for (const Start& start : starts_) {
    starts.insert(start.node.get());
  }
  for (Node* const node : graph.nodes()) {
    if (graph.leads_to_end(node) && !starts.contains(node)) {
      node->add_post_hook(std::make_unique<ReleaseNode>(*node));
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
  // Parameters that are not reached from a start node can be reached from the roots only.
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
  // Runs in the order of a full pass, from the outputs on.
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

namespace {

bool can_have_gradient(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type());
}

// RAII guard: restores buffers (running means, counts of calls) after a second forward pass.
class KeptBuffers {
 public:
  explicit KeptBuffers(const std::vector<NamedTensor>& buffers) : buffers_(buffers) {
    for (const NamedTensor& buffer : buffers) {
      values_.push_back(buffer.tensor.detach().clone());
    }
  }

  ~KeptBuffers() {
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      // variable_data() leaves the version unchanged, so graphs that saved the buffer stay valid.
      buffers_[i].tensor.variable_data().copy_(values_[i]);
    }
  }

  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;
  KeptBuffers(KeptBuffers&&) = delete;
  KeptBuffers& operator=(KeptBuffers&&) = delete;

 private:
  const std::vector<NamedTensor>& buffers_;
  std::vector<at::Tensor> values_;
};

}  // namespace

StagePass::StagePass(const StagePart& stage, StageMessage inputs, Options options)
    : stage_(stage), inputs_(std::move(inputs)), options_(std::move(options)) {
  if (!c10::GradMode::is_enabled()) {
    keep_outputs(stage_.forward(inputs_.tensors, options_.random));
    inputs_.tensors.clear();
    return;
  }
  if (!options_.is_checkpointed) {
    run_with_graph();
    inputs_.tensors.clear();
    return;
  }
  const c10::NoGradGuard nothing_kept;
  Tensors outputs = forward_keeping_inputs();
  if (options_.loss) {
    (void)compute_loss(outputs);
  }
  keep_outputs(outputs);
}

// Passes copies of the inputs to the stage if the stage works in place on them.
Tensors StagePass::forward_keeping_inputs() {
  const auto versions_of = [](const Tensors& tensors) {
    std::vector<std::int64_t> versions;
    for (const at::Tensor& tensor : tensors) {
      versions.push_back(tensor._version());
    }
    return versions;
  };
  versions_ = versions_of(inputs_.tensors);
  if (!stage_.may_change_inputs()) {
    return stage_.forward(inputs_.tensors, options_.random);
  }
  Tensors copies;
  for (const at::Tensor& input : inputs_.tensors) {
    copies.push_back(input.clone());
  }
  const std::vector<std::int64_t> before = versions_of(copies);
  Tensors outputs = stage_.forward(copies, options_.random);
  stage_.note_inputs(versions_of(copies) != before);
  return outputs;
}

void StagePass::keep_outputs(const Tensors& outputs) {
  bool has_gradients = stage_.is_trained();
  for (const bool needs_gradient : inputs_.needs_gradient) {
    has_gradients = has_gradients || needs_gradient;
  }
  for (const at::Tensor& output : outputs) {
    outputs_.tensors.push_back(output.detach());
    // A checkpointed pass has no graph yet, so any output may need a gradient.
    outputs_.needs_gradient.push_back(
        output.requires_grad() ||
        (options_.is_checkpointed && has_gradients && can_have_gradient(output)));
  }
}

at::Tensor StagePass::compute_loss(const Tensors& outputs) {
  at::Tensor loss = options_.loss(outputs);
  if (!loss.defined() || loss.numel() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "the loss function returned " + describe(loss) + ", not a tensor of one element");
  }
  loss_ = loss.detach();
  sizes_of_loss_ = loss.sizes().vec();
  of_loss_ = loss.options();
  return loss;
}

at::Tensor StagePass::gradient_of_loss(double weight) const {
  return at::full(sizes_of_loss_, weight, of_loss_);
}

void StagePass::run_with_graph() {
  end_ = c10::make_intrusive<InputGradients>();
  Tensors inputs;
  for (std::size_t i = 0; i < inputs_.tensors.size(); ++i) {
    inputs.push_back(inputs_.needs_gradient[i] ? InputGradients::attach(end_, inputs_.tensors[i])
                                               : inputs_.tensors[i]);
  }
  const Tensors outputs = stage_.forward(inputs, options_.random);
  keep_outputs(outputs);
  keep_roots(options_.loss ? Tensors{compute_loss(outputs)} : outputs);
}

void StagePass::keep_roots(const Tensors& outputs) {
  for (const at::Tensor& output : outputs) {
    roots_.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output)
                                            : torch::autograd::Edge());
  }
}

void StagePass::run_again() {
  for (std::size_t i = 0; i < inputs_.tensors.size(); ++i) {
    if (inputs_.tensors[i]._version() != versions_[i]) {
      throw Error(ErrorCode::kInvalidArgument,
                  "its input " + std::to_string(i) + ", " + describe(inputs_.tensors[i]) +
                      ", was changed in place, so it can't be computed again; let the stage begin "
                      "with a layer that does not work in place, or set checkpoint to kNever");
    }
  }
  const KeptBuffers kept(stage_.buffers());
  run_with_graph();
  outputs_ = {};
}

StagePass::Roots StagePass::take_roots(const Tensors& gradients) {
  if (options_.is_checkpointed) {
    run_again();
    inputs_.tensors.clear();
  }
  UNISONO_CHECK(gradients.size() == roots_.size(), "a gradient for each output");
  Roots roots;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const torch::autograd::Edge& root = roots_[i];
    if (gradients[i].defined() && root.is_valid()) {
      const auto& output = root.function->input_metadata(root.input_nr);
      if (!output.is_same_shape(gradients[i])) {
        throw Error(ErrorCode::kMismatch,
                    "the gradient of its output " + std::to_string(i) + ", " +
                        describe(output.zeros_like()) + ", is " + describe(gradients[i]));
      }
      roots.edges.push_back(root);
      roots.gradients.push_back(gradients[i]);
    }
  }
  roots_.clear();
  return roots;
}

void StagePass::backward(const Tensors& gradients, WeightSums& sums) {
  const Roots roots = take_roots(gradients);
  if (roots.edges.empty()) {
    return;
  }
  const bool may_add = std::ranges::any_of(
      stage_.parameters(), [](const NamedTensor& named) { return may_add_product(named.tensor); });
  if (may_add) {
    backward_with_products(roots.edges, roots.gradients, sums);
  } else {
    torch::autograd::Engine::get_default_engine().execute(roots.edges,
                                                          roots.gradients,
                                                          /*keep_graph=*/false,
                                                          /*create_graph=*/false,
                                                          /*accumulate_grad=*/true);
  }
}

void StagePass::backward_inputs(const Tensors& gradients) {
  Roots roots = take_roots(gradients);
  split_.emplace(std::move(roots.edges), std::move(roots.gradients), end_);
}

void StagePass::backward_weights(WeightSums& sums) {
  split_->add_weight_gradients(sums);
  split_.reset();
}

Tensors StagePass::input_gradients() const {
  Tensors gradients;
  std::size_t n_taken = 0;
  for (const bool needs_gradient : inputs_.needs_gradient) {
    gradients.push_back(needs_gradient ? end_->gradients()[n_taken++] : at::Tensor());
  }
  return gradients;
}

}  // namespace unisono::parallel
