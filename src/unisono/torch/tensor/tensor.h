#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

namespace unisono {

/// The element type of tensors of `type`. Throws Error(kInvalidArgument) for types that no
/// operation computes with (quantized, 8-bit floats, ...).
[[nodiscard]] DType dtype_of(at::ScalarType type);

[[nodiscard]] at::ScalarType scalar_type_of(DType dtype);

/// Type and sizes as in messages: "f32[64, 1, 28, 28]".
[[nodiscard]] std::string describe(const at::Tensor& tensor);

/// A buffer over the tensor's memory, which it keeps alive.
///
/// Throws Error(kInvalidArgument), with what to do, unless the tensor is dense, contiguous and in
/// CPU memory.
[[nodiscard]] Buffer as_buffer(const at::Tensor& tensor);

/// As as_buffer(), for what `operation` computes with: its name begins the errors.
[[nodiscard]] Buffer as_operand(const at::Tensor& tensor, const char* operation);

/// As as_buffer(), for operations that move elements and compute nothing: of every type of
/// LibTorch. Elements of a type that dtype_of() refuses are taken for bytes, or for numbers of
/// their width.
[[nodiscard]] Buffer as_payload(const at::Tensor& tensor);

/// Tells autograd that an operation has written, or is about to write, past its back: so it can see
/// that a saved tensor changed.
void bump_version(const at::Tensor& written);

// ProcessGroup's operations on tensors. Each says what it does to the tensor's elements; the
// gradient does not flow through it. The Work of an asynchronous one keeps the tensors alive. Those
// that wait give the thread's RandomTurn away meanwhile.

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

void broadcast(ProcessGroup& group, const at::Tensor& tensor, const BroadcastOptions& options = {});
Work broadcast_async(ProcessGroup& group,
                     const at::Tensor& tensor,
                     const BroadcastOptions& options = {});

/// A zeroed, contiguous tensor in memory that the node's ranks share: operations on it, and on
/// contiguous parts of it, copy nothing. A local call.
///
/// Throws Error(kInvalidArgument) when the arena (UNISONO_ARENA_BYTES) has no room for it.
[[nodiscard]] at::Tensor allocate_tensor(ProcessGroup& group,
                                         at::IntArrayRef sizes,
                                         at::ScalarType type = at::kFloat);

/// Strides of a contiguous tensor of these sizes.
[[nodiscard]] std::vector<std::int64_t> contiguous_strides(at::IntArrayRef sizes);

/// A tensor of `sizes` and `strides` over part of a buffer, from `offset` elements on; it shares
/// the buffer's ownership of the memory, and is no view of another tensor.
[[nodiscard]] at::Tensor as_tensor(const Buffer& buffer,
                                   std::int64_t offset,
                                   at::IntArrayRef sizes,
                                   at::IntArrayRef strides);

}  // namespace unisono
