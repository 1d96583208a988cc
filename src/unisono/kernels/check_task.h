#pragma once

#include <cstdint>

#include "unisono/kernels/reduce.h"

namespace unisono::kernels {

/// Throws Error(kInvalidArgument) as check_reduction does, and when the task makes no sense: no
/// inputs, no outputs, steps that name values which do not exist yet, a negative count, a divisor
/// below 1, no function where the user's own is asked for.
void check_task(const ReduceTask& task, std::int64_t count);

}  // namespace unisono::kernels
