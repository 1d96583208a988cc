#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace unisono::parallel {

// The borders between what all ranks of a group compute alike and what they divide among them.
// Each is a differentiable operation on this rank's tensor; forward and backward are collective
// operations where they communicate, of tensors of the same shape on all ranks. Gradients follow
// one rule: that of a tensor which all ranks have alike is the same on all, and the whole's; that
// of a part is the part of the whole's. A group of one rank, and a null pointer, change nothing.
//
// They throw RefusedCall for an undefined tensor, a dimension it has not, and a size that the ranks
// can't divide equally. Backward can be differentiated again.
//
// Source: Shoeybi et al., "Megatron-LM", arXiv:1909.08053; for the last two Korthikanti et al.,
// "Reducing activation recomputation in large transformer models", arXiv:2205.05198.

using GroupPointer = std::shared_ptr<ProcessGroup>;

/// The tensor itself, at the entry of a region that each rank computes a part of. Backward: the sum
/// over the ranks.
[[nodiscard]] at::Tensor copy_to_region(const at::Tensor& tensor, const GroupPointer& group);

/// The sum over the ranks, at such a region's end. Backward: the gradient itself.
[[nodiscard]] at::Tensor reduce_from_region(const at::Tensor& tensor, const GroupPointer& group);

/// This rank's chunk along a dimension of what all have alike. Backward: all ranks' chunks.
[[nodiscard]] at::Tensor scatter_to_region(const at::Tensor& tensor,
                                           std::int64_t dim,
                                           const GroupPointer& group);

/// All ranks' chunks, one after the other, for what all then compute alike. Backward: this rank's
/// chunk.
[[nodiscard]] at::Tensor gather_from_region(const at::Tensor& tensor,
                                            std::int64_t dim,
                                            const GroupPointer& group);

/// All ranks' chunks, for a region that each rank computes a part of. Backward: the sum over the
/// ranks, of which each gets its chunk.
[[nodiscard]] at::Tensor gather_to_region(const at::Tensor& tensor,
                                          std::int64_t dim,
                                          const GroupPointer& group);

/// This rank's chunk of the sum over the ranks. Backward: all ranks' chunks.
[[nodiscard]] at::Tensor reduce_scatter_from_region(const at::Tensor& tensor,
                                                    std::int64_t dim,
                                                    const GroupPointer& group);

}  // namespace unisono::parallel
