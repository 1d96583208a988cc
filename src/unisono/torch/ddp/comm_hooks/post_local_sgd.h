#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"

namespace unisono {

/// What post_local_sgd_hook() works with; names are PyTorch's. Equal on every rank.
struct PostLocalSgdState {
  /// All ranks.
  std::shared_ptr<ProcessGroup> group;
  /// Ranks that go on to average their gradients, those of a node say; null: none do, and
  /// gradients stay local.
  std::shared_ptr<ProcessGroup> subgroup = {};
  /// Backward passes that all ranks average first.
  std::int64_t start_local_sgd_iter = 0;
  /// Passes so far.
  std::int64_t n_passes = 0;
};

/// Averages gradients over all ranks in the first passes, later over the subgroup only: ranks then
/// train models that differ, which a PeriodicModelAverager brings together after every few steps.
///
/// Source: Lin, Stich, Patel and Jaggi, "Don't use large mini-batches, use local SGD", ICLR 2020.
BucketWork post_local_sgd_hook(PostLocalSgdState& state, const GradBucket& bucket);

/// Averages the parameters' values over the ranks of a group after every `period` steps, from step
/// `warmup_steps` on, as PyTorch's PeriodicModelAverager does.
class PeriodicModelAverager {
 public:
  /// Throws Error(kInvalidArgument) for a period that is not positive or negative warm-up steps.
  PeriodicModelAverager(std::shared_ptr<ProcessGroup> group,
                        std::int64_t period,
                        std::int64_t warmup_steps = 0);

  /// To be called after each step of the optimizer, on every rank. A collective operation at the
  /// steps that average.
  void average_parameters(const std::vector<at::Tensor>& parameters);

 private:
  std::shared_ptr<ProcessGroup> group_;
  std::int64_t period_;
  std::int64_t warmup_steps_;
  std::int64_t n_steps_ = 0;
};

}  // namespace unisono
