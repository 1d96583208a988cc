#include "unisono/torch/ddp/sparse_reducer.h"

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/sparse_gradients.h"
#include "unisono/torch/ddp/uneven_inputs.h"
#include "unisono/torch/ddp/used_parameters.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

namespace {

// Of rows that are there twice, the sum is weighted, as of a dense gradient.
at::Tensor weighted(const at::Tensor& gradient, double weight) {
  if (!gradient.defined() || weight == 1) {
    return gradient;
  }
  return (gradient.is_sparse() ? gradient.coalesce() : gradient).mul(weight);
}

}  // namespace

SparseReducer::SparseReducer(const std::vector<NamedTensor>& parameters,
                             std::vector<bool> is_sparse)
    : parameters_(parameters), is_sparse_(std::move(is_sparse)) {}

// Each rank's gradients of the same parameters, a rank without a batch with none.
void SparseReducer::run(ProcessGroup& group,
                        const UsedParameters& used,
                        const SparseWeights& weights,
                        bool is_shadow,
                        std::optional<std::chrono::milliseconds> timeout) const {
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (is_sparse_[i] && used.has(i)) {
      parameters.push_back(parameters_[i]);
      gradients.push_back(is_shadow ? at::Tensor()
                                    : weighted(parameters_[i].tensor.grad(), weights.own));
    }
  }
  if (parameters.empty()) {
    return;
  }
  std::vector<at::Tensor> means;
  explain_uneven_inputs(
      [&] { means = average_sparse(group, parameters, gradients, weights.divisor, timeout); });
  for (std::size_t i = 0; i < parameters.size() && !is_shadow; ++i) {
    if (weights.factor != 1) {
      means[i].mul_(weights.factor);
    }
    parameters[i].tensor.mutable_grad() = means[i];
  }
}

}  // namespace unisono::ddp
