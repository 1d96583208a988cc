#pragma once

#include "unisono/engine/native/operation_context.h"

namespace unisono::engine {

// Operations that move bytes and compute nothing. Between nodes each byte goes once to every node
// that needs it, straight into the memory of a rank there.

void broadcast(OperationContext& context);
void all_gather(OperationContext& context);
/// gather, scatter, all_to_all.
void move_blocks(OperationContext& context);

}  // namespace unisono::engine
