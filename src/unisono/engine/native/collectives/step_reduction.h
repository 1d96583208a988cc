#pragma once

#include "unisono/collective/step_plan.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

/// An all-reduce that goes from rank to rank: out of its peers' staging buffers inside the node,
/// through connections between nodes. Buffers larger than a staging buffer go part by part.
void reduce_in_steps(OperationContext& context, const collective::StepPlan& plan);

}  // namespace unisono::engine
