#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/used_parameters.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// What becomes of a pass's sparse gradients.
struct SparseWeights {
  double own = 1;     ///< This rank's gradients are multiplied by it.
  double divisor;     ///< Of the sum over the ranks.
  double factor = 1;  ///< What the mean is multiplied by.
};

/// Averages the sparse gradients among those of a model's parameters.
class SparseReducer {
 public:
  /// `parameters` must outlive the object, and may grow.
  SparseReducer(const std::vector<NamedTensor>& parameters, std::vector<bool> is_sparse);

  /// Of each parameter, whether its gradients may be sparse.
  [[nodiscard]] const std::vector<bool>& is_sparse() const { return is_sparse_; }

  /// For parameters that have been added to the vector.
  void add(const std::vector<bool>& is_sparse) {
    is_sparse_.insert(is_sparse_.end(), is_sparse.begin(), is_sparse.end());
  }

  /// A collective operation: the weighted mean of each parameter's gradient that any rank uses
  /// becomes its gradient. As a shadow, this rank has no rows, and keeps what it has.
  void run(ProcessGroup& group,
           const UsedParameters& used,
           const SparseWeights& weights,
           bool is_shadow,
           std::optional<std::chrono::milliseconds> timeout) const;

 private:
  const std::vector<NamedTensor>& parameters_;
  std::vector<bool> is_sparse_;
};

}  // namespace unisono::ddp
