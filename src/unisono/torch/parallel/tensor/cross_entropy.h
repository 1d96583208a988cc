#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace unisono::parallel {

enum class LossReduction : std::uint8_t { kMean, kSum, kNone };

struct CrossEntropyOptions {
  LossReduction reduction = LossReduction::kMean;
  /// Targets of this value count nothing, not even in the mean.
  std::int64_t ignore_index = -100;
};

/// The cross entropy of logits whose classes are divided among the ranks: each passes those of its
/// part, of a ColumnParallelLinear without gather_output, say, in the last dimension, and the same
/// targets, which are i64 numbers of the whole's classes. Every rank gets the whole's loss, in
/// float32 at least; backward gives each the gradient of its own logits.
///
/// A collective operation that sends three numbers for each target, however many classes there are:
/// the largest logit, the sum of exponentials and the target's logit. Backward sends nothing, and
/// can't be differentiated again.
///
/// Throws RefusedCall for shapes and types that do not fit, and for a target that is no class.
[[nodiscard]] at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits,
                                                      const at::Tensor& targets,
                                                      const std::shared_ptr<ProcessGroup>& group,
                                                      const CrossEntropyOptions& options = {});

}  // namespace unisono::parallel
