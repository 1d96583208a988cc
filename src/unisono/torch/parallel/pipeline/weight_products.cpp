#include "unisono/torch/parallel/pipeline/weight_products.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <unordered_set>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/generated/Functions.h>
#include <torch/csrc/autograd/variable.h>

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

// Depth first, without recursion, because graphs are as deep as models.
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

at::Tensor InputGradients::attach(const c10::intrusive_ptr<InputGradients>& node,
                                  const at::Tensor& value) {
  at::Tensor input = value.detach();
  torch::autograd::create_gradient_edge(input, node);
  node->gradients_.emplace_back();
  return input;
}

torch::autograd::variable_list InputGradients::apply(torch::autograd::variable_list&& gradients) {
  gradients_ = std::move(gradients);
  return {};
}

namespace {

// Compares both ways for random numbers, which make the sums inexact.
bool are_alike_in(at::ScalarType type,
                  std::int64_t n_rows,
                  std::int64_t left_width,
                  std::int64_t right_width) {
  const c10::NoGradGuard no_grad;
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  const at::TensorOptions options(type);
  const at::Tensor left = at::rand({n_rows, left_width}, generator, options).t();
  const at::Tensor right = at::rand({n_rows, right_width}, generator, options);
  const at::Tensor expected = at::mm(left, right);
  constexpr double kSome = 0.7;
  const at::Tensor sum = expected * kSome;
  expected.add_(sum);
  sum.addmm_(left, right);
  return at::equal(sum, expected);
}

}  // namespace

bool ProductBits::are_alike(at::ScalarType type,
                            std::int64_t n_rows,
                            std::int64_t left_width,
                            std::int64_t right_width) {
  const Shape shape{type, n_rows, left_width, right_width, at::get_num_threads()};
  return are_alike_.try_emplace(shape).first->second.value_or(false);
}

void ProductBits::try_new_shapes() {
  for (auto& [shape, result] : are_alike_) {
    const auto& [type, n_rows, left_width, right_width, n_threads] = shape;
    if (!result.has_value() && n_threads == at::get_num_threads()) {
      result = are_alike_in(type, n_rows, left_width, right_width);
    }
  }
}

namespace {

namespace autograd = ::torch::autograd;
using autograd::AccumulateGrad;
using autograd::Node;

// The addition of smaller gradients, which stay in a core's cache, costs almost no time.
constexpr std::int64_t kLarge = 1 << 14;

using NumbersOfUses = std::unordered_map<const Node*, int>;

NumbersOfUses count_uses(const BackwardGraph& graph) {
  NumbersOfUses uses;
  for (const Node* const node : graph.nodes()) {
    for (const autograd::Edge& edge : node->next_edges()) {
      if (edge.is_valid()) {
        ++uses[edge.function.get()];
      }
    }
  }
  return uses;
}

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.tensor_pre_hooks().empty() || node.tensor_post_acc_grad_hooks() != nullptr;
}

// The edge of a product's second factor, and the saved first factor.
struct Factors {
  const autograd::Edge* second;
  const autograd::SavedVariable* first;
};

std::optional<Factors> factors_of(const Node& node) {
  constexpr std::size_t kSecondOfSum = 2;  // After the summand and the first factor.
  if (const auto* const sum = dynamic_cast<const autograd::generated::AddmmBackward0*>(&node)) {
    return sum->alpha.equal(1) ? std::optional(Factors{.second = &node.next_edge(kSecondOfSum),
                                                       .first = &sum->mat1_})
                               : std::nullopt;
  }
  if (const auto* const product = dynamic_cast<const autograd::generated::MmBackward0*>(&node)) {
    return Factors{.second = &node.next_edge(1), .first = &product->self_};
  }
  return std::nullopt;
}

std::optional<WeightProduct> weight_product_of(Node* node) {
  const std::optional<Factors> factors = factors_of(*node);
  if (!factors || !factors->second->is_valid()) {
    return std::nullopt;
  }
  Node* second = factors->second->function.get();
  const bool is_transposed = dynamic_cast<autograd::generated::TBackward0*>(second) != nullptr;
  if (is_transposed) {
    second = second->next_edge(0).function.get();
  }
  auto* const weight = dynamic_cast<AccumulateGrad*>(second);
  if (weight == nullptr || weight->variable.numel() < kLarge) {
    return std::nullopt;
  }
  return WeightProduct{
      .node = node, .weight = weight, .input = factors->first, .is_transposed = is_transposed};
}

bool is_plain(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() &&
         tensor.scalar_type() == type;
}

bool is_addable(const WeightProduct& product) {
  const at::Tensor& weight = product.weight->variable;
  const at::Tensor& gradient = weight.grad();
  const at::ScalarType type = weight.scalar_type();
  return (type == at::kFloat || type == at::kDouble) && gradient.defined() &&
         !gradient.requires_grad() && is_plain(weight, type) && is_plain(gradient, type);
}

bool may_add_itself(const WeightProduct& product, ProductBits& bits) {
  const at::Tensor& weight = product.weight->variable;
  const std::int64_t n_rows =
      product.node->input_metadata(0).shape_as_dim_vector()[0].guard_int(__FILE__, __LINE__);
  return bits.are_alike(weight.scalar_type(), n_rows, weight.size(0), weight.size(1));
}

class AddToWeight : public autograd::FunctionPreHook {
 public:
  explicit AddToWeight(const WeightProduct& product) : product_(product) {}

  autograd::variable_list operator()(const autograd::variable_list& gradients) override {
    add(product_, gradients.at(0));
    return gradients;
  }

 private:
  WeightProduct product_;
};

}  // namespace

bool may_add_product(const at::Tensor& weight) {
  return weight.is_cpu() && weight.dim() == 2 && weight.numel() >= kLarge &&
         weight.grad().defined();
}

std::vector<WeightProduct> find_weight_products(const BackwardGraph& graph) {
  std::vector<WeightProduct> products;
  for (Node* const node : graph.nodes()) {
    if (const auto product = weight_product_of(node)) {
      products.push_back(*product);
    }
  }
  if (products.empty()) {
    return products;
  }
  NumbersOfUses uses = count_uses(graph);
  std::erase_if(products, [&](const WeightProduct& product) {
    // The weight, and its transposition if present, must have a single use.
    Node* const second = factors_of(*product.node)->second->function.get();
    return uses[product.weight] != 1 || uses[second] != 1 || has_hooks(*product.weight) ||
           has_hooks(*second) || !product.node->post_hooks().empty();
  });
  return products;
}

void keep_addable(std::vector<WeightProduct>& products, WeightSums& sums) {
  std::erase_if(products, [](const WeightProduct& product) { return !is_addable(product); });
  for (WeightProduct& product : products) {
    product.memory = may_add_itself(product, sums.bits) ? nullptr : &sums.memory;
  }
}

void add(const WeightProduct& product, const at::Tensor& gradient) {
  if (!gradient.defined()) {
    return;
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor input = product.input->unpack();
  const at::Tensor left = (product.is_transposed ? gradient : input).t();
  const at::Tensor& right = product.is_transposed ? input : gradient;
  const at::Tensor& sum = product.weight->variable.grad();
  if (!is_plain(gradient, sum.scalar_type()) || !is_plain(input, sum.scalar_type())) {
    sum.add_(at::mm(left, right));
  } else if (product.memory != nullptr) {
    at::Tensor own = product.memory->get(sum);
    sum.add_(at::mm_out(own, left, right));
  } else {
    sum.addmm_(left, right);
  }
}

void run_with_products(const autograd::edge_list& roots,
                       const autograd::variable_list& gradients,
                       autograd::edge_list leaves,
                       const std::vector<WeightProduct>& products) {
  for (const WeightProduct& product : products) {
    std::erase_if(
        leaves, [&](const autograd::Edge& leaf) { return leaf.function.get() == product.weight; });
    product.node->add_pre_hook(std::make_unique<AddToWeight>(product));
    leaves.emplace_back(product.node->getptr(), 0);
  }
  autograd::Engine::get_default_engine().execute(roots,
                                                 gradients,
                                                 /*keep_graph=*/false,
                                                 /*create_graph=*/false,
                                                 /*accumulate_grad=*/true,
                                                 leaves);
}

void backward_with_products(const autograd::edge_list& roots,
                            const std::vector<at::Tensor>& gradients,
                            WeightSums& sums) {
  const BackwardGraph graph(roots, nullptr);
  std::vector<WeightProduct> products = find_weight_products(graph);
  keep_addable(products, sums);
  autograd::edge_list leaves;
  for (Node* const node : graph.nodes()) {
    if (std::ranges::none_of(node->next_edges(), &autograd::Edge::is_valid)) {
      leaves.emplace_back(node->getptr(), 0);
    }
  }
  run_with_products(roots, gradients, std::move(leaves), products);
}

}  // namespace unisono::parallel
