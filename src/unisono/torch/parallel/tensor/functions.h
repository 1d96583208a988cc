#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace unisono::parallel {

// The borders between computation that is the same on all ranks of a group and computation that is
// divided among the ranks. Each border is a differentiable operation on this rank's tensor. Forward
// and backward are collective operations where communication is needed, with tensors of the same
// shape on all ranks. Gradients follow a single rule: the gradient of a tensor that all ranks hold
// alike is the whole gradient, the same on all ranks; the gradient of a part is the corresponding
// part of the whole gradient. With a group of a single rank or a null group, the operations return
// the tensor unchanged.
//
// The operations throw RefusedCall for an undefined tensor, a dimension out of range, and a size
// that is not divisible by the number of ranks. Backward can be differentiated again.
//
// Source: Shoeybi et al., "Megatron-LM", arXiv:1909.08053; for the last two operations Korthikanti
// et al., "Reducing activation recomputation in large transformer models", arXiv:2205.05198.

/// The ranks that divide a layer.
using GroupPointer = std::shared_ptr<ProcessGroup>;

/// Enters a region in which each rank computes a part. Returns the tensor itself. Backward: the sum
/// over the ranks.
[[nodiscard]] at::Tensor copy_to_region(const at::Tensor& tensor, const GroupPointer& group);

/// Leaves such a region. Returns the sum over the ranks. Backward: the gradient itself.
[[nodiscard]] at::Tensor reduce_from_region(const at::Tensor& tensor, const GroupPointer& group);

/// Returns this rank's chunk, along a dimension, of a tensor that all ranks hold alike. Backward:
/// the chunks of all ranks, joined.
[[nodiscard]] at::Tensor scatter_to_region(const at::Tensor& tensor,
                                           std::int64_t dim,
                                           const GroupPointer& group);

/// Returns the chunks of all ranks, joined in the order of ranks, for computation that is the same
/// on all ranks. Backward: this rank's chunk.
[[nodiscard]] at::Tensor gather_from_region(const at::Tensor& tensor,
                                            std::int64_t dim,
                                            const GroupPointer& group);

/// Returns the chunks of all ranks, joined, for a region in which each rank computes a part.
/// Backward: this rank's chunk of the sum over the ranks.
[[nodiscard]] at::Tensor gather_to_region(const at::Tensor& tensor,
                                          std::int64_t dim,
                                          const GroupPointer& group);

/// Returns this rank's chunk of the sum over the ranks. Backward: the chunks of all ranks, joined.
[[nodiscard]] at::Tensor reduce_scatter_from_region(const at::Tensor& tensor,
                                                    std::int64_t dim,
                                                    const GroupPointer& group);

/// Result of a loss: the mean of all targets, the sum, or one value per target.
enum class LossReduction : std::uint8_t { kMean, kSum, kNone };

/// Options of vocab_parallel_cross_entropy(), equal on all ranks.
struct CrossEntropyOptions {
  /// Form of the result.
  LossReduction reduction = LossReduction::kMean;
  /// Targets with this value contribute neither to the loss nor to the count of the mean.
  std::int64_t ignore_index = -100;
};

/// Cross entropy of logits with the classes divided among the ranks. Each rank passes the logits of
/// the rank's classes in the last dimension (for example the output of a ColumnParallelLinear
/// without gather_output), and the same targets, which are i64 class numbers of the whole. Every
/// rank receives the loss of the whole, in at least float32; backward gives each rank the gradient
/// of the rank's logits.
///
/// A collective operation that sends three numbers per target, for any number of classes: the
/// largest logit, the sum of exponentials and the target's logit. Backward sends no messages and
/// cannot be differentiated again.
///
/// Throws RefusedCall for shapes and types that do not match, and for a target outside the classes.
[[nodiscard]] at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits,
                                                      const at::Tensor& targets,
                                                      const std::shared_ptr<ProcessGroup>& group,
                                                      const CrossEntropyOptions& options = {});

}  // namespace unisono::parallel
