#pragma once

#include <memory>

#include "unisono/comm/process_group.h"

namespace torch::nn {
class Module;
}

namespace unisono::parallel {

/// Completes the gradients of parameters that every rank holds whole but that received a part of
/// the sequence only (norms and biases under sequence parallelism): replaces each gradient by the
/// sum over the ranks, with one all_reduce per element type. Call once per step, after backward()
/// (of DistributedDataParallel, too) and before gradients are read (by clipping or the optimizer's
/// step): a second call would add the gradients again. A collective operation, even without such
/// parameters. Parameters without a gradient are skipped; the skipped parameters must be the same
/// on every rank.
///
/// Throws Error(kInvalidArgument) for gradients that are sparse.
void sum_partial_gradients(const torch::nn::Module& module);

/// Options of clip_grad_norm(), equal on all ranks.
struct ClipOptions {
  double norm_type = 2;  ///< Type of the norm; may be infinity.
  /// true: an infinite or NaN norm is an error.
  bool error_if_nonfinite = false;
  /// Ranks with other layers of the same model, for example the stages of a pipeline. Null: no such
  /// ranks.
  std::shared_ptr<ProcessGroup> others = {};
};

/// torch::nn::utils::clip_grad_norm_() for the whole model: multiplies the gradients by max_norm /
/// norm if that is less than 1. Returns the norm before clipping. Elements that only one rank has
/// and elements that all ranks have count once each, so the norm is that of the whole model on any
/// number of ranks. A collective operation; call sum_partial_gradients() first.
///
/// As in torch, a NaN norm turns all gradients into NaNs, and an infinite norm into zeros and NaNs.
/// With `error_if_nonfinite`, every rank throws Error(kInvalidArgument) instead and gradients stay
/// unchanged. Throws Error(kInvalidArgument) for a negative norm or type, and for sparse gradients.
double clip_grad_norm(const torch::nn::Module& module,
                      double max_norm,
                      const ClipOptions& options = {});

}  // namespace unisono::parallel
