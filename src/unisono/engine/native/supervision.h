#pragma once

#include <cstdint>

#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/supervising_engine.h"

namespace unisono::engine {

/// Meets the ranks of this node, has `supervised` begin, and advances it until it is done. Throws
/// what WaitMonitor::check() throws meanwhile.
///
/// It looks again and again, as such an operation moves only while it is called: in a tight loop,
/// with a sched_yield in between, and, where it takes long and ranks of other nodes may be late,
/// after naps of up to a millisecond.
void carry_out_supervised(SupervisedOperation& supervised,
                          OperationContext& context,
                          std::uint32_t group);

}  // namespace unisono::engine
