#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/wrapped_tensors.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Adds parameters to a Reducer that were frozen when their module was wrapped, and are unfrozen
/// later. Owned by the Replica; both arguments must outlive it.
class Unfreezing {
 public:
  /// `sparse`: the parameters whose gradients may be sparse.
  Unfreezing(WrappedTensors& wrapped, Reducer& reducer, const std::vector<at::Tensor>& sparse);

  /// A collective operation if `is_any_thawed`: compares the unfrozen parameters of the ranks, and
  /// adds them to the reducer. Throws Error(kMismatch) where the ranks have unfrozen others.
  void take_in(bool is_any_thawed);

  /// Returns the text that ends the errors of ranks that called different operations.
  [[nodiscard]] std::string advice() const;

  /// Throws RefusedCall if parameters were unfrozen within a step of the function `step`.
  void refuse_within(const std::string& step) const;

 private:
  void compare(const std::vector<NamedTensor>& thawed) const;

  WrappedTensors& wrapped_;
  Reducer& reducer_;
  std::vector<at::Tensor> sparse_;
};

}  // namespace unisono::ddp
