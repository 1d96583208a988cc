#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/saved_variable.h>

#include "unisono/torch/parallel/pipeline/backward_graph.h"
#include "unisono/torch/parallel/pipeline/product_bits.h"

namespace unisono::parallel {

/// A product of matrices of which one is a weight, as in a linear layer: the weight's gradient is
/// the product of another two, and can be added to what is there by that product itself.
struct WeightProduct {
  torch::autograd::Node* node;
  torch::autograd::AccumulateGrad* weight;
  const torch::autograd::SavedVariable* input;
  bool is_transposed;  ///< The weight is outputs x inputs, as that of torch::nn::Linear.
};

/// Whether the tensor's gradient is there, and so large that it is worth to look for products.
[[nodiscard]] bool may_add_product(const at::Tensor& weight);

/// Of those weights that nothing else in the graph gives a gradient, and nobody has a hook at.
[[nodiscard]] std::vector<WeightProduct> find_weight_products(const BackwardGraph& graph);

/// Whether the product can be added to the weight's gradient with the bits that it would have
/// otherwise.
[[nodiscard]] bool can_add(const WeightProduct& product, ProductBits& bits);

/// `gradient`: of the product's output; undefined for none.
void add(const WeightProduct& product, const at::Tensor& gradient);

/// A whole backward pass, with products that add to what is there where they can.
void backward_with_products(const std::vector<at::Tensor>& roots,
                            const std::vector<at::Tensor>& gradients,
                            ProductBits& bits);

/// Runs a backward pass to the leaves given, with the gradients of these products' weights added by
/// the products, though the weights are not among the leaves.
void run_with_products(const torch::autograd::edge_list& roots,
                       const torch::autograd::variable_list& gradients,
                       torch::autograd::edge_list leaves,
                       const std::vector<WeightProduct>& products);

}  // namespace unisono::parallel
