#pragma once

#include <concepts>
#include <initializer_list>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

namespace unisono {

// ProcessGroup's operations on tensors, beside those of tensor.h, and as those: dense, contiguous
// tensors in CPU memory; no gradient flows through; the Work of an asynchronous one keeps the
// tensors alive. Elements count, not shapes.

// The root's `out` gets the sum; the other ranks pass an undefined tensor.

void reduce(ProcessGroup& group,
            const at::Tensor& in,
            const at::Tensor& out,
            const ReduceOptions& options = {});
Work reduce_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const at::Tensor& out,
                  const ReduceOptions& options = {});

/// A block for each rank: one after the other along a tensor's first dimension, or in a list with a
/// tensor for each. Made where a call is given either, and refers to it for the time of the call.
class TensorBlocks {
 public:
  // NOLINTBEGIN(google-explicit-constructor): callers pass either.
  TensorBlocks(const at::Tensor& tensor) : whole_(&tensor) {}

  // A TensorList can be made of one tensor, too, which is no list here.
  template <class List>
    requires(std::convertible_to<const List&, at::TensorList> &&
             !std::convertible_to<const List&, const at::Tensor&>)
  TensorBlocks(const List& tensors) : list_(tensors) {}

  TensorBlocks(std::initializer_list<at::Tensor> tensors) : list_(tensors) {}

  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_list() const { return whole_ == nullptr; }

  [[nodiscard]] at::TensorList tensors() const {
    return is_list() ? list_ : at::TensorList(*whole_);
  }

 private:
  const at::Tensor* whole_ = nullptr;
  at::TensorList list_;
};

void reduce_scatter(ProcessGroup& group,
                    const TensorBlocks& in,
                    const at::Tensor& out,
                    const ReduceScatterOptions& options = {});
Work reduce_scatter_async(ProcessGroup& group,
                          const TensorBlocks& in,
                          const at::Tensor& out,
                          const ReduceScatterOptions& options = {});

void all_gather(ProcessGroup& group,
                const at::Tensor& in,
                const TensorBlocks& out,
                const AllGatherOptions& options = {});
Work all_gather_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const TensorBlocks& out,
                      const AllGatherOptions& options = {});

// As all_gather on the root; the other ranks pass an undefined tensor or an empty list.

void gather(ProcessGroup& group,
            const at::Tensor& in,
            const TensorBlocks& out,
            const GatherOptions& options = {});
Work gather_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const TensorBlocks& out,
                  const GatherOptions& options = {});

// The root's `in` is as for reduce_scatter; the other ranks pass none.

void scatter(ProcessGroup& group,
             const TensorBlocks& in,
             const at::Tensor& out,
             const ScatterOptions& options = {});
Work scatter_async(ProcessGroup& group,
                   const TensorBlocks& in,
                   const at::Tensor& out,
                   const ScatterOptions& options = {});

// Block r of `in` goes to rank r, and block r of `out` comes from it. Both are lists, or neither.

void all_to_all(ProcessGroup& group,
                const TensorBlocks& in,
                const TensorBlocks& out,
                const AllToAllOptions& options = {});
Work all_to_all_async(ProcessGroup& group,
                      const TensorBlocks& in,
                      const TensorBlocks& out,
                      const AllToAllOptions& options = {});

// Messages between two ranks.

void send(ProcessGroup& group, const at::Tensor& tensor, int to, const SendOptions& options = {});
Work send_async(ProcessGroup& group,
                const at::Tensor& tensor,
                int to,
                const SendOptions& options = {});
int recv(ProcessGroup& group, const at::Tensor& tensor, int from, const RecvOptions& options = {});
Work recv_async(ProcessGroup& group,
                const at::Tensor& tensor,
                int from,
                const RecvOptions& options = {});

}  // namespace unisono
