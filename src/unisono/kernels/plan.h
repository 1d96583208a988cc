#pragma once

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "unisono/kernels/lanes.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {

/// One pass of a plan. Its operands and its result are places: first the task's inputs, then the
/// scratch slots. The last instruction has no result place: it stores to the task's outputs.
struct Instruction {
  Pass pass;
  int operands[2];
  int result;
};

inline constexpr int kToOutputs = -1;

/// A task's steps as passes over blocks, with slots that are used again once their value is done
/// with.
struct Plan {
  std::pmr::vector<Instruction> instructions;
  int n_slots = 0;
};

[[nodiscard]] Plan make_plan(const ReduceTask& task,
                             const Lanes& lanes,
                             std::pmr::memory_resource* memory);

/// Carries the plan out, block by block, so that what lies in slots stays in the first cache.
void run_plan(const Plan& plan, const ReduceTask& task, const Lanes& lanes, std::int64_t n_lanes);

}  // namespace unisono::kernels
