#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/hook_support.h"

namespace unisono {

// Hooks that need no state but the process group, for
// DistributedDataParallel::register_comm_hook().

/// Averages the bucket by an all_reduce, as without a hook. A base for other hooks.
BucketWork allreduce_hook(ProcessGroup& group, const GradBucket& bucket);

/// Sends gradients as 16-bit floats: half the bytes, values up to 65504 with 11 significant bits.
/// The sum over ranks is computed in 32 bits and rounded once. 16-bit and complex gradients are
/// sent unchanged.
BucketWork fp16_compress_hook(ProcessGroup& group, const GradBucket& bucket);

/// Sends gradients as bfloat16: the full range of float with 8 significant bits. Otherwise like
/// fp16_compress_hook().
BucketWork bf16_compress_hook(ProcessGroup& group, const GradBucket& bucket);

/// State of top_k_hook() between passes, for a single model. Owned by the DistributedDataParallel
/// that the hook is registered with. Used by a single backward pass at a time.
class TopKState {
 public:
  /// `ratio` is the fraction of a bucket's gradients that is sent, at least one gradient; equal on
  /// every rank. Throws Error(kInvalidArgument) unless `ratio` is above 0 and at most 1.
  TopKState(std::shared_ptr<ProcessGroup> group, double ratio);

 private:
  friend BucketWork top_k_hook(TopKState& state, const GradBucket& bucket);

  std::shared_ptr<ProcessGroup> group_;
  double ratio_;
  ddp::ErrorMemory errors_;
};

/// Each rank sends the gradients of largest magnitude with positions; the mean over ranks is
/// computed from these. Unsent gradients are added to the rank's next gradients, so that no
/// contribution is lost. Each sent gradient needs 4 additional bytes, so traffic shrinks only for
/// ratios below 1 / world size. Complex gradients are averaged without compression.
///
/// Source: Lin, Han, Mao, Wang and Dally, "Deep gradient compression", ICLR 2018.
BucketWork top_k_hook(TopKState& state, const GradBucket& bucket);

/// State of post_local_sgd_hook(). Names follow PyTorch. Every rank passes equal values.
struct PostLocalSgdState {
  /// All ranks.
  std::shared_ptr<ProcessGroup> group;
  /// Ranks that continue to average gradients, for example the ranks of a node. Null: gradients
  /// stay local.
  std::shared_ptr<ProcessGroup> subgroup = {};
  /// Number of initial backward passes that are averaged over all ranks.
  std::int64_t start_local_sgd_iter = 0;
  /// Number of passes so far.
  std::int64_t n_passes = 0;
};

/// Averages gradients over all ranks in the first passes, later over the subgroup only. The ranks'
/// models then differ; a PeriodicModelAverager averages the models after every few steps.
///
/// Source: Lin, Stich, Patel and Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020.
BucketWork post_local_sgd_hook(PostLocalSgdState& state, const GradBucket& bucket);

/// Averages the parameters' values over the ranks of a group every `period` steps, starting at step
/// `warmup_steps`, as PyTorch's PeriodicModelAverager does. Not thread-safe.
class PeriodicModelAverager {
 public:
  /// Throws Error(kInvalidArgument) for a null group, a period below 1 or negative warm-up steps.
  PeriodicModelAverager(std::shared_ptr<ProcessGroup> group,
                        std::int64_t period,
                        std::int64_t warmup_steps = 0);

  /// Called after each step of the optimizer on every rank. A collective operation in the steps
  /// that average.
  void average_parameters(const std::vector<at::Tensor>& parameters);

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::int64_t period_;
  std::int64_t warmup_steps_;
  std::int64_t n_steps_ = 0;
};

}  // namespace unisono
