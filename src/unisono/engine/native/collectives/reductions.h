#pragma once

#include <span>

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/compress.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::engine {

// all_reduce, reduce and reduce_scatter: the plan says who receives what.

/// Inside a single node, for what fits into the slots: each receiver adds all contributions up
/// itself. `steps` is the canonical tree over the node's ranks.
void reduce_in_slots(OperationContext& context,
                     const collective::ReducePlan& plan,
                     kernels::ReduceSteps steps);

/// One-shot between nodes, for what fits into the slots.
void reduce_one_shot(OperationContext& context, const collective::ReducePlan& plan);

/// Each rank combines its chunk, and passes the result on to its receivers. Between nodes what is
/// f32 goes compressed. `steps` is the canonical tree over all ranks.
void reduce_two_shot(OperationContext& context,
                     const collective::ReducePlan& plan,
                     kernels::ReduceSteps steps,
                     kernels::Compression compression);

}  // namespace unisono::engine
