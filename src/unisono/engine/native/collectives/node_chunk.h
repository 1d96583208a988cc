#pragma once

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

/// The elements of the ranks' inputs that a rank of a single node reduces.
[[nodiscard]] collective::ElementRange node_chunk(const OperationContext& context,
                                                  collective::Receivers::Kind receivers,
                                                  int local_rank);

}  // namespace unisono::engine
