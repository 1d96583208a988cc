#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/data/batch.h"
#include "unisono/torch/device/tensor_mirror.h"
#include "unisono/torch/tensor/named_tensor.h"

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
[[nodiscard]] Buffer as_buffer(const at::Tensor& tensor,
                               TensorAccess access = TensorAccess::kReadWrite);

/// Like as_buffer(), for tensors that `operation` computes with. Errors begin with the name of the
/// operation.
[[nodiscard]] Buffer as_operand(const at::Tensor& tensor,
                                const char* operation,
                                TensorAccess access = TensorAccess::kReadWrite);

/// Like as_buffer(), for operations that move elements without computing; accepts every type of
/// LibTorch. Elements of a type that dtype_of() refuses are treated as bytes, or as numbers of the
/// same width.
[[nodiscard]] Buffer as_payload(const at::Tensor& tensor,
                                TensorAccess access = TensorAccess::kReadWrite);

/// Increases the tensor's version counter. Called when an operation writes, or is about to write,
/// outside of autograd's control, so that autograd detects changes of saved tensors.
void bump_version(const at::Tensor& written);

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

// ProcessGroup's operations on the elements of dense, contiguous tensors. Only the number of
// elements matters, not the shapes. No gradient flows through. The Work of an asynchronous
// operation keeps the tensors alive. Blocking operations release the thread's RandomTurn while they
// wait.
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

// The root's `out` receives the result; the other ranks pass an undefined tensor.

/// As ProcessGroup::reduce(), with the elements of tensors. On ranks other than the root `out` is
/// an undefined tensor.
void reduce(ProcessGroup& group,
            const at::Tensor& in,
            const at::Tensor& out,
            const ReduceOptions& options = {});
Work reduce_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const at::Tensor& out,
                  const ReduceOptions& options = {});

/// One block per rank: consecutive blocks along a tensor's first dimension, or a list with a tensor
/// for each rank. Constructed implicitly from the argument of a call; refers to the argument only
/// during the call.
class TensorBlocks {
 public:
  // NOLINTBEGIN(google-explicit-constructor): callers pass either.
  /// A tensor that holds all blocks, or a list of one tensor per rank.
  TensorBlocks(const at::Tensor& tensor) : whole_(&tensor) {}

  // Excludes a single tensor, which converts to a TensorList as well but is not a list here.
  template <class List>
    requires(std::convertible_to<const List&, at::TensorList> &&
             !std::convertible_to<const List&, const at::Tensor&>)
  TensorBlocks(const List& tensors) : list_(tensors) {}

  TensorBlocks(std::initializer_list<at::Tensor> tensors) : list_(tensors) {}

  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_list() const { return whole_ == nullptr; }

  /// The list, or a list with the single tensor.
  [[nodiscard]] at::TensorList tensors() const {
    return is_list() ? list_ : at::TensorList(*whole_);
  }

 private:
  const at::Tensor* whole_ = nullptr;
  at::TensorList list_;
};

/// As ProcessGroup::reduce_scatter(), with the elements of tensors.
void reduce_scatter(ProcessGroup& group,
                    const TensorBlocks& in,
                    const at::Tensor& out,
                    const ReduceScatterOptions& options = {});
Work reduce_scatter_async(ProcessGroup& group,
                          const TensorBlocks& in,
                          const at::Tensor& out,
                          const ReduceScatterOptions& options = {});

/// As ProcessGroup::all_gather(), with the elements of tensors.
void all_gather(ProcessGroup& group,
                const at::Tensor& in,
                const TensorBlocks& out,
                const AllGatherOptions& options = {});
Work all_gather_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const TensorBlocks& out,
                      const AllGatherOptions& options = {});

// Like all_gather on the root; the other ranks pass an undefined tensor or an empty list.

/// As ProcessGroup::gather(), with the elements of tensors.
void gather(ProcessGroup& group,
            const at::Tensor& in,
            const TensorBlocks& out,
            const GatherOptions& options = {});
Work gather_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const TensorBlocks& out,
                  const GatherOptions& options = {});

// The root's `in` is like that of reduce_scatter; the other ranks pass an undefined tensor or an
// empty list.

/// As ProcessGroup::scatter(), with the elements of tensors.
void scatter(ProcessGroup& group,
             const TensorBlocks& in,
             const at::Tensor& out,
             const ScatterOptions& options = {});
Work scatter_async(ProcessGroup& group,
                   const TensorBlocks& in,
                   const at::Tensor& out,
                   const ScatterOptions& options = {});

// Block r of `in` is sent to rank r, and block r of `out` is received from rank r. Either both are
// lists or both are tensors.

/// As ProcessGroup::all_to_all(), with the elements of tensors.
void all_to_all(ProcessGroup& group,
                const TensorBlocks& in,
                const TensorBlocks& out,
                const AllToAllOptions& options = {});
Work all_to_all_async(ProcessGroup& group,
                      const TensorBlocks& in,
                      const TensorBlocks& out,
                      const AllToAllOptions& options = {});

// Messages between two ranks. recv() returns the source rank.

/// As ProcessGroup::send(), with the elements of a tensor.
void send(ProcessGroup& group, const at::Tensor& tensor, int to, const SendOptions& options = {});
Work send_async(ProcessGroup& group,
                const at::Tensor& tensor,
                int to,
                const SendOptions& options = {});
/// As ProcessGroup::recv(), into the elements of a tensor. Returns the sending rank.
int recv(ProcessGroup& group, const at::Tensor& tensor, int from, const RecvOptions& options = {});
Work recv_async(ProcessGroup& group,
                const at::Tensor& tensor,
                int from,
                const RecvOptions& options = {});

/// Copies a rank's values of many tensors, of any types, to every rank. Small tensors are combined
/// in memory that the node's ranks share; the memory is kept for later calls. Not thread-safe.
/// Throws communication errors.
class CoalescedBroadcast {
 public:
  /// `what` names the tensors in messages: "buffers".
  CoalescedBroadcast(std::vector<NamedTensor> tensors, std::string what);

  /// A collective operation. Tensors have equal sizes and types on every rank and in every call.
  void run(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout, int root = 0);

 private:
  void run_part(ProcessGroup& group,
                std::span<const NamedTensor> tensors,
                std::optional<std::chrono::milliseconds> timeout,
                int root);

  std::vector<NamedTensor> tensors_;
  std::string what_;
  Buffer staging_;
};

}  // namespace unisono
