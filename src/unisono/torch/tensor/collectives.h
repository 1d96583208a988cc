#pragma once

#include <ATen/core/Tensor.h>

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

// `in` has a block for each rank along its first dimension, or `ins` a tensor for each.

void reduce_scatter(ProcessGroup& group,
                    const at::Tensor& in,
                    const at::Tensor& out,
                    const ReduceScatterOptions& options = {});
Work reduce_scatter_async(ProcessGroup& group,
                          const at::Tensor& in,
                          const at::Tensor& out,
                          const ReduceScatterOptions& options = {});
void reduce_scatter(ProcessGroup& group,
                    at::TensorList ins,
                    const at::Tensor& out,
                    const ReduceScatterOptions& options = {});
Work reduce_scatter_async(ProcessGroup& group,
                          at::TensorList ins,
                          const at::Tensor& out,
                          const ReduceScatterOptions& options = {});

// `out` has room for every rank's `in` along its first dimension, or `outs` a tensor for each.

void all_gather(ProcessGroup& group,
                const at::Tensor& in,
                const at::Tensor& out,
                const AllGatherOptions& options = {});
Work all_gather_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const at::Tensor& out,
                      const AllGatherOptions& options = {});
void all_gather(ProcessGroup& group,
                const at::Tensor& in,
                at::TensorList outs,
                const AllGatherOptions& options = {});
Work all_gather_async(ProcessGroup& group,
                      const at::Tensor& in,
                      at::TensorList outs,
                      const AllGatherOptions& options = {});

// As all_gather on the root; the other ranks pass an undefined tensor or an empty list.

void gather(ProcessGroup& group,
            const at::Tensor& in,
            const at::Tensor& out,
            const GatherOptions& options = {});
Work gather_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const at::Tensor& out,
                  const GatherOptions& options = {});
void gather(ProcessGroup& group,
            const at::Tensor& in,
            at::TensorList outs,
            const GatherOptions& options = {});
Work gather_async(ProcessGroup& group,
                  const at::Tensor& in,
                  at::TensorList outs,
                  const GatherOptions& options = {});

// `in` or `ins` as for reduce_scatter on the root; the other ranks pass none.

void scatter(ProcessGroup& group,
             const at::Tensor& in,
             const at::Tensor& out,
             const ScatterOptions& options = {});
Work scatter_async(ProcessGroup& group,
                   const at::Tensor& in,
                   const at::Tensor& out,
                   const ScatterOptions& options = {});
void scatter(ProcessGroup& group,
             at::TensorList ins,
             const at::Tensor& out,
             const ScatterOptions& options = {});
Work scatter_async(ProcessGroup& group,
                   at::TensorList ins,
                   const at::Tensor& out,
                   const ScatterOptions& options = {});

// Block or tensor r of the input goes to rank r, and block r of the output comes from it.

void all_to_all(ProcessGroup& group,
                const at::Tensor& in,
                const at::Tensor& out,
                const AllToAllOptions& options = {});
Work all_to_all_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const at::Tensor& out,
                      const AllToAllOptions& options = {});
void all_to_all(ProcessGroup& group,
                at::TensorList ins,
                at::TensorList outs,
                const AllToAllOptions& options = {});
Work all_to_all_async(ProcessGroup& group,
                      at::TensorList ins,
                      at::TensorList outs,
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
