#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/data/batch.h"
#include "unisono/torch/device/tensor_mirror.h"

namespace unisono {

/// Returns the element type of tensors of `type`. Throws Error(kInvalidArgument) for types that
/// operations cannot compute with (quantized, 8-bit floats, ...).
[[nodiscard]] DType dtype_of(at::ScalarType type);

/// Returns the element type of LibTorch for `dtype`.
[[nodiscard]] at::ScalarType scalar_type_of(DType dtype);

/// Returns type and sizes for messages: "f32[64, 1, 28, 28]".
[[nodiscard]] std::string describe(const at::Tensor& tensor);

/// Returns a buffer over the tensor's memory, for an operation. The buffer keeps the memory alive.
/// For a tensor on a device the buffer is for a single operation, which begins now: see
/// mirror_tensor().
///
/// Throws Error(kInvalidArgument), with a remedy, unless the tensor is dense and contiguous.
[[nodiscard]] Buffer as_buffer(const at::Tensor& tensor, Access access = Access::kReadWrite);

/// Like as_buffer(), for tensors that `operation` computes with. Errors begin with the name of the
/// operation.
[[nodiscard]] Buffer as_operand(const at::Tensor& tensor,
                                const char* operation,
                                Access access = Access::kReadWrite);

/// Like as_buffer(), for operations that move elements without computing; accepts every type of
/// LibTorch. Elements of a type that dtype_of() refuses are treated as bytes, or as numbers of the
/// same width.
[[nodiscard]] Buffer as_payload(const at::Tensor& tensor, Access access = Access::kReadWrite);

/// Increases the tensor's version counter. Called when an operation writes, or is about to write,
/// outside of autograd's control, so that autograd detects changes of saved tensors.
void bump_version(const at::Tensor& written);

// ProcessGroup's operations on the elements of tensors. No gradient flows through. The Work of an
// asynchronous operation keeps the tensors alive. Blocking operations release the thread's
// RandomTurn while they wait.
//
// Tensors may be on a device. The operation is ordered behind the work that the calling thread has
// passed to its current stream of the device, and Work::wait(), or the end of a blocking operation,
// orders the waiting thread's later work on its current stream behind the operation.

/// As ProcessGroup::all_reduce(), with the elements of tensors.
void all_reduce(ProcessGroup& group,
                const at::Tensor& in_out,
                const AllReduceOptions& options = {});
void all_reduce(ProcessGroup& group,
                const at::Tensor& in,
                const at::Tensor& out,
                const AllReduceOptions& options = {});
Work all_reduce_async(ProcessGroup& group,
                      const at::Tensor& in_out,
                      const AllReduceOptions& options = {});
Work all_reduce_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const at::Tensor& out,
                      const AllReduceOptions& options = {});

/// As ProcessGroup::broadcast(), with the elements of a tensor.
void broadcast(ProcessGroup& group, const at::Tensor& tensor, const BroadcastOptions& options = {});
Work broadcast_async(ProcessGroup& group,
                     const at::Tensor& tensor,
                     const BroadcastOptions& options = {});

/// Returns a zeroed, contiguous tensor in memory that the node's ranks share: operations on the
/// tensor, and on contiguous parts of the tensor, avoid copies. A local call.
///
/// Throws Error(kInvalidArgument) if the arena (UNISONO_ARENA_BYTES) has no room for the tensor.
[[nodiscard]] at::Tensor allocate_tensor(ProcessGroup& group,
                                         at::IntArrayRef sizes,
                                         at::ScalarType type = at::kFloat);

/// Returns the strides of a contiguous tensor of these sizes.
[[nodiscard]] std::vector<std::int64_t> contiguous_strides(at::IntArrayRef sizes);

/// Returns a tensor of `sizes` and `strides` over part of a buffer, starting at element `offset`.
/// The tensor shares the buffer's ownership of the memory and is not a view of another tensor.
[[nodiscard]] at::Tensor as_tensor(const Buffer& buffer,
                                   std::int64_t offset,
                                   at::IntArrayRef sizes,
                                   at::IntArrayRef strides);

/// Tensors of a batch.
struct BatchTensors {
  at::Tensor samples;  ///< [batch size, shape of a sample...].
  at::Tensor labels;   ///< [batch size], int64.
};

/// Returns a loader's batch as tensors over the batch's memory, without a copy. The memory returns
/// to the loader when both tensors are destroyed. If the loader's options have pin_memory and there
/// is an accelerator, the tensors are copies in page-locked memory.
[[nodiscard]] BatchTensors as_tensors(data::Batch batch);

}  // namespace unisono
