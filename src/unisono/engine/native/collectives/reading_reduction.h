#pragma once

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::engine {

/// Whether the ranks of the node have shown where their buffers are in their processes, and reading
/// them there had better be done. Inside a single node; after enter_with_buffers().
[[nodiscard]] bool can_reduce_by_reading(const OperationContext& context,
                                         const collective::ReducePlan& plan);

/// all_reduce and reduce_scatter of private memory: each rank reads its chunk of the other ranks'
/// buffers piece by piece, reduces it into its own, and then reads the other chunks' results.
/// `steps` is the canonical tree over the node's ranks.
void reduce_by_reading(OperationContext& context,
                       const collective::ReducePlan& plan,
                       kernels::ReduceSteps steps);

}  // namespace unisono::engine
