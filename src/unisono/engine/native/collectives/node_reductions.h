#pragma once

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

// Inside a single node. `steps` is the canonical tree over its ranks.

/// The elements of the ranks' inputs that a rank reduces.
[[nodiscard]] collective::ElementRange node_chunk(const OperationContext& context,
                                                  collective::Receivers::Kind receivers,
                                                  int local_rank);

/// Whether all others can reach what a rank of the node reads and writes: it lies there.
[[nodiscard]] bool is_reachable(const OperationContext& context,
                                collective::Receivers receivers,
                                int local_rank,
                                const shm::Placement& placement);

/// Whether that holds for all ranks, which have shown where; after enter_with_buffers().
[[nodiscard]] bool is_symmetric(const OperationContext& context, collective::Receivers receivers);

/// Each rank reads its chunk of all ranks' buffers, and writes the result where it belongs.
void reduce_symmetric(OperationContext& context,
                      collective::Receivers receivers,
                      kernels::ReduceSteps steps);

/// Whether the ranks of the node have shown where their buffers are in their processes, and reading
/// them there had better be done; after enter_with_buffers().
[[nodiscard]] bool can_reduce_by_reading(const OperationContext& context,
                                         const collective::ReducePlan& plan);

/// all_reduce and reduce_scatter of private memory: each rank reads its chunk of the other ranks'
/// buffers piece by piece, reduces it into its own, and then reads the other chunks' results.
void reduce_by_reading(OperationContext& context,
                       const collective::ReducePlan& plan,
                       kernels::ReduceSteps steps);

}  // namespace unisono::engine
