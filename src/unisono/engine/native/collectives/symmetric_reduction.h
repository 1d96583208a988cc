#pragma once

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

// Inside a single node.

/// Whether all others can reach what a rank of the node reads and writes: it lies there.
[[nodiscard]] bool is_reachable(const OperationContext& context,
                                collective::Receivers receivers,
                                int local_rank,
                                const shm::Placement& placement);

/// Whether that holds for all ranks, which have shown where; after enter_with_buffers().
[[nodiscard]] bool is_symmetric(const OperationContext& context, collective::Receivers receivers);

/// Each rank reads its chunk of all ranks' buffers, and writes the result where it belongs. `steps`
/// is the canonical tree over the node's ranks.
void reduce_symmetric(OperationContext& context,
                      collective::Receivers receivers,
                      kernels::ReduceSteps steps);

}  // namespace unisono::engine
