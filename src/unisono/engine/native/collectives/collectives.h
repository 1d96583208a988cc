#pragma once

#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/step_plan.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/compress.h"
#include "unisono/kernels/reduce_tree.h"

namespace unisono::engine {

// Operations that move bytes and compute nothing. Between nodes each byte goes once to every node
// that needs it, straight into the memory of a rank there.

void broadcast(OperationContext& context);
void all_gather(OperationContext& context);
/// gather, scatter, all_to_all.
void move_blocks(OperationContext& context);

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

/// An all-reduce that goes from rank to rank: out of its peers' staging buffers inside the node,
/// through connections between nodes. Buffers larger than a staging buffer go part by part.
void reduce_in_steps(OperationContext& context, const collective::StepPlan& plan);

}  // namespace unisono::engine
