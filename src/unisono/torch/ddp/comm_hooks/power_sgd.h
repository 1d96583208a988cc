#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/error_memory.h"

namespace unisono {

/// Names and defaults are PyTorch's. Equal on every rank.
struct PowerSgdOptions {
  /// Columns of the factors: more of them lose less, and take longer.
  std::int64_t matrix_approximation_rank = 1;
  /// Backward passes that are averaged as they are first: gradients change most at the beginning.
  /// At least 2 with error feedback or warm start, as buckets change after the first pass.
  std::int64_t start_power_sgd_iter = 1000;
  /// A matrix is sent as it is unless its factors have fewer elements by this factor.
  double min_compression_rate = 2;
  /// What is lost of a gradient is added to the next one.
  bool use_error_feedback = true;
  /// The factors of a pass are where the next one starts from, unless they have overflowed.
  bool warm_start = true;
  /// Added to the norm of each column that is divided by it. A column of zeros, where no gradient
  /// came, needs it: without, its gradients become NaN.
  double orthogonalization_epsilon = 0;
  std::uint32_t random_seed = 0;
};

/// What power_sgd_hook() keeps from one pass to the next: of one model.
class PowerSgdState {
 public:
  /// Throws Error(kInvalidArgument) for options that can't be used.
  explicit PowerSgdState(std::shared_ptr<ProcessGroup> group, const PowerSgdOptions& options = {});

  /// Elements of all gradients so far, and of what was sent for them; passes without compression
  /// are not counted.
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

/// Sends each matrix of gradients M, of a parameter of two dimensions or more, as P and Q of
/// M = P Q^T that have few columns: P is the mean over ranks of M Q, orthogonalized, then Q of
/// M^T P. Other gradients are averaged as they are. The numbers are PyTorch's powerSGD_hook's.
///
/// Source: Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for
/// distributed optimization", NeurIPS 2019.
BucketWork power_sgd_hook(PowerSgdState& state, const GradBucket& bucket);

}  // namespace unisono
