#pragma once

#include <chrono>
#include <concepts>
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
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

// ProcessGroup's operations on tensors, in addition to those of tensor.h, with the same rules:
// dense, contiguous tensors in CPU memory; no gradient flows through; the Work of an asynchronous
// operation keeps the tensors alive. Only the number of elements matters, not the shapes.

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
