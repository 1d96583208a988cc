#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "unisono/torch/parallel/pipeline/backward_graph.h"
#include "unisono/torch/parallel/pipeline/product_memory.h"

namespace unisono::parallel {

/// A product of matrices of which one is a weight, as in a linear layer: the weight's gradient is
/// the product of another two, and can be added to what is there by that product itself.
struct WeightProduct {
  torch::autograd::Node* node;
  torch::autograd::AccumulateGrad* weight;
  const torch::autograd::SavedVariable* input;
  bool is_transposed;  ///< The weight is outputs x inputs, as that of torch::nn::Linear.
  /// Where the product is put before it is added; null: it adds to what is there.
  ProductMemory* memory = nullptr;
};

/// Whether the tensor's gradient is there, and so large that it is worth to look for products.
[[nodiscard]] bool may_add_product(const at::Tensor& weight);

/// Of those weights that nothing else in the graph gives a gradient, and nobody has a hook at.
[[nodiscard]] std::vector<WeightProduct> find_weight_products(const BackwardGraph& graph);

/// Leaves those whose weights have a gradient that add() can add to, with the bits that it would
/// have otherwise.
void keep_addable(std::vector<WeightProduct>& products, WeightSums& sums);

/// `gradient`: of the product's output; undefined for none.
void add(const WeightProduct& product, const at::Tensor& gradient);

/// A whole backward pass, with products that are added to what is there.
void backward_with_products(const torch::autograd::edge_list& roots,
                            const std::vector<at::Tensor>& gradients,
                            WeightSums& sums);

/// Runs a backward pass to the leaves given, with the gradients of these products' weights added by
/// the products, though the weights are not among the leaves.
void run_with_products(const torch::autograd::edge_list& roots,
                       const torch::autograd::variable_list& gradients,
                       torch::autograd::edge_list leaves,
                       const std::vector<WeightProduct>& products);

}  // namespace unisono::parallel
