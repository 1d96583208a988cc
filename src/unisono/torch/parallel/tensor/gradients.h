#pragma once

#include <memory>

#include "unisono/comm/process_group.h"

namespace torch::nn {
class Module;
}

namespace unisono::parallel {

/// Completes the gradients of parameters that all ranks have whole but that saw a part of the
/// sequence only (norms and biases under sequence parallelism): the sum over the ranks, one
/// all_reduce per element type. Between backward(), DistributedDataParallel's too, and what reads
/// gradients (clipping, the optimizer's step); once, as a second call would add them again. A
/// collective operation, also where it has nothing to do. Parameters without a gradient are left
/// out; they must be the same on every rank.
///
/// Throws Error(kInvalidArgument) for gradients that are sparse or not in CPU memory.
void sum_partial_gradients(const torch::nn::Module& module);

struct ClipOptions {
  double norm_type = 2;  ///< May be infinity.
  /// Whether a norm that is infinite or NaN is an error.
  bool error_if_nonfinite = false;
  /// Ranks that have other layers of the same model: the stages of a pipeline, say. Null: none.
  std::shared_ptr<ProcessGroup> others = {};
};

/// torch::nn::utils::clip_grad_norm_() of the whole model: its gradients times max_norm / norm,
/// where that is less than 1. Returns the norm before. Elements that a rank alone has and those
/// that all have count once each, so that the norm is that of the whole on any number of ranks. A
/// collective operation; sum_partial_gradients() comes before.
///
/// A norm that is NaN makes NaNs of all gradients, one that is infinite zeros and NaNs, as in
/// torch; with `error_if_nonfinite` it is Error(kInvalidArgument) on every rank, and they stay as
/// they are. Throws Error(kInvalidArgument) for a negative norm or type, and for sparse gradients.
double clip_grad_norm(const torch::nn::Module& module,
                      double max_norm,
                      const ClipOptions& options = {});

}  // namespace unisono::parallel
