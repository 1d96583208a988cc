#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace unisono::parallel {

/// The nodes that a backward pass from some roots reaches. Refers to the nodes, which must outlive
/// the object. Not thread-safe.
class BackwardGraph {
 public:
  using Node = torch::autograd::Node;

  /// `end`: a node of the graph, or null.
  BackwardGraph(const torch::autograd::edge_list& roots, const Node* end);

  /// All nodes; each node comes after the nodes that it leads to.
  [[nodiscard]] const std::vector<Node*>& nodes() const { return order_; }

  [[nodiscard]] bool leads_to_end(const Node* node) const { return leads_to_end_.at(node); }

  /// Returns the parameters that `node` leads to on paths that avoid nodes on the way to the end.
  [[nodiscard]] torch::autograd::edge_list parameters_beside(const Node& node) const;

 private:
  void visit(Node* root);

  const Node* end_;
  std::unordered_map<const Node*, bool> leads_to_end_;
  std::vector<Node*> order_;
};

/// The end node of the graph of a stage's pass, which stores the gradients of the inputs.
///
/// The inputs of a stage have this node as their history, so the first layer of a stage may work in
/// place, as in a whole model.
class InputGradients : public torch::autograd::Node {
 public:
  [[nodiscard]] std::string name() const override { return "PipelineInputBackward"; }

  /// Returns the value as an input of the pass of `node`, without a copy.
  static at::Tensor attach(const c10::intrusive_ptr<InputGradients>& node, const at::Tensor& value);

  /// The gradients of the tensors passed to attach(), in order; undefined for unused tensors.
  [[nodiscard]] const std::vector<at::Tensor>& gradients() const { return gradients_; }

 protected:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override;

 private:
  std::vector<at::Tensor> gradients_;
};

/// Finds the shapes for which a product of matrices that adds to a matrix (addmm_) has the same
/// bits as a product and a separate addition.
///
/// Math libraries sum a few hundred rows in registers before the addition to memory, which is one
/// addition either way. Longer sums are added in parts, and the product of one row may be fused
/// with the addition. The limits depend on library, processor and shape, so each shape is tried
/// once. Not thread-safe.
class ProductBits {
 public:
  /// Returns true if both ways are known to give equal bits for the product of left.t() and right,
  /// which have `n_rows` rows each. Returns false for an untried shape, which is recorded for
  /// try_new_shapes().
  [[nodiscard]] bool are_alike(at::ScalarType type,
                               std::int64_t n_rows,
                               std::int64_t left_width,
                               std::int64_t right_width);

  /// Tries the recorded shapes. Each trial takes the time of a few products.
  void try_new_shapes();

 private:
  // Type, rows, widths and number of threads.
  using Shape = std::tuple<at::ScalarType, std::int64_t, std::int64_t, std::int64_t, int>;

  std::map<Shape, std::optional<bool>> are_alike_;  // std::nullopt: untried.
};

/// Memory for one product of matrices at a time. A new tensor for each product costs a page fault
/// per 4 KiB if the allocator has returned the memory of the previous product to the system.
class ProductMemory {
 public:
  /// Returns an uninitialized contiguous tensor with the sizes and the type of `like`. Valid until
  /// the next call.
  [[nodiscard]] at::Tensor get(const at::Tensor& like) {
    if (!memory_.defined() || memory_.scalar_type() != like.scalar_type() ||
        memory_.numel() < like.numel()) {
      memory_.reset();  // Frees the old memory before the allocation.
      memory_ = at::empty({like.numel()}, like.options());
    }
    return memory_.narrow(0, 0, like.numel()).view(like.sizes());
  }

  void release() { memory_.reset(); }

 private:
  at::Tensor memory_;
};

/// State of weight products over the chunks of a step and over steps.
struct WeightSums {
  ProductBits bits;
  ProductMemory memory;  ///< For products with a separate addition.
};

/// A product of a matrix and a weight in the graph, such as a linear layer. The weight's gradient
/// is the product of the output's gradient and the input. addmm_ can add that product to the
/// existing gradient.
struct WeightProduct {
  torch::autograd::Node* node;
  torch::autograd::AccumulateGrad* weight;
  const torch::autograd::SavedVariable* input;
  bool is_transposed;  ///< The weight has the shape outputs x inputs, as in torch::nn::Linear.
  /// Memory for a product with a separate addition; null: addmm_ is used.
  ProductMemory* memory = nullptr;
};

/// Returns true if the weight is a matrix with a gradient and is large enough to justify the search
/// for products in the graph.
[[nodiscard]] bool may_add_product(const at::Tensor& weight);

/// Finds the products with weights that have a single use in the graph and no hooks.
[[nodiscard]] std::vector<WeightProduct> find_weight_products(const BackwardGraph& graph);

/// Keeps the products that add() can add to an existing gradient without changing bits.
void keep_addable(std::vector<WeightProduct>& products, WeightSums& sums);

/// Adds the product to the weight's gradient. `gradient` is the gradient of the product's output,
/// or undefined.
void add(const WeightProduct& product, const at::Tensor& gradient);

/// Runs a whole backward pass in which the products of the graph add to the gradients of their
/// weights.
void backward_with_products(const torch::autograd::edge_list& roots,
                            const std::vector<at::Tensor>& gradients,
                            WeightSums& sums);

/// Runs a backward pass to the leaves. The products add the gradients of their weights, which are
/// removed from the leaves.
void run_with_products(const torch::autograd::edge_list& roots,
                       const torch::autograd::variable_list& gradients,
                       torch::autograd::edge_list leaves,
                       const std::vector<WeightProduct>& products);

}  // namespace unisono::parallel
