#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"

namespace unisono {

/// Names and defaults follow PyTorch. Every rank passes equal options.
struct PowerSgdOptions {
  /// Number of columns of the factors. More columns lose less and cost more time.
  std::int64_t matrix_approximation_rank = 1;
  /// Number of initial backward passes without compression: gradients change most at the beginning.
  /// At least 2 with error feedback or warm start, because buckets change after the first pass.
  std::int64_t start_power_sgd_iter = 1000;
  /// A matrix is compressed only if compression reduces the number of elements by more than this
  /// factor.
  double min_compression_rate = 2;
  /// Adds the compression loss of a gradient to the next gradient.
  bool use_error_feedback = true;
  /// Starts each pass from the factors of the previous pass, unless those overflowed.
  bool warm_start = true;
  /// Added to the norm of each column before the division. A column of zeros (no gradient arrived)
  /// needs a positive value: otherwise its gradients become NaN.
  double orthogonalization_epsilon = 0;
  /// Seed of the first factors, equal on every rank.
  std::uint32_t random_seed = 0;
};

/// State of power_sgd_hook() between passes, for a single model. Owned by the
/// DistributedDataParallel that the hook is registered with. Used by a single backward pass at a
/// time.
class PowerSgdState {
 public:
  /// Throws Error(kInvalidArgument) for unusable options.
  explicit PowerSgdState(std::shared_ptr<ProcessGroup> group, const PowerSgdOptions& options = {});

  /// Number of gradient elements so far, and the number of elements sent for them. Passes without
  /// compression are not counted.
  [[nodiscard]] std::int64_t n_elems_before() const { return n_elems_before_; }

  [[nodiscard]] std::int64_t n_elems_after() const { return n_elems_after_; }

 private:
  friend class PowerSgdPass;
  friend BucketWork power_sgd_hook(PowerSgdState& state, const GradBucket& bucket);

  std::shared_ptr<ProcessGroup> group_;
  PowerSgdOptions options_;
  std::mt19937 random_;  // the same numbers on every rank
  std::int64_t n_passes_ = 0;
  std::int64_t n_elems_before_ = 0;
  std::int64_t n_elems_after_ = 0;
  ddp::ErrorMemory errors_;
  std::map<std::size_t, at::Tensor> right_factors_;  // by bucket
};

/// Sends each gradient matrix M, of a parameter of two dimensions or more, as narrow factors P and
/// Q of M = P Q^T. P is the sum over ranks of M Q, orthogonalized; Q is the mean over ranks of M^T
/// P. Other gradients are averaged without compression. The results equal those of PyTorch's
/// powerSGD_hook.
///
/// Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for
/// distributed optimization", NeurIPS 2019.
BucketWork power_sgd_hook(PowerSgdState& state, const GradBucket& bucket);

}  // namespace unisono
