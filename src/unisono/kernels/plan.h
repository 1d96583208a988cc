#pragma once

#include <array>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "unisono/kernels/lanes.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {

/// One pass of a plan. Its operands and its result are places: first the task's inputs, then the
/// scratch slots.
struct Instruction {
  Pass pass;
  int n_operands;
  std::array<int, kMaxPassInputs> operands;
  int result;
};

/// The result place of a plan's last instruction: the task's outputs.
inline constexpr int kToOutputs = -1;

/// A task's steps as passes over blocks, with slots that are used again once their value is done
/// with.
struct Plan {
  std::pmr::vector<Instruction> instructions;
  int n_slots = 0;
};

/// Combines as many inputs at once as the steps and the passes allow, and leaves out steps that the
/// result does not need.
[[nodiscard]] Plan make_plan(const ReduceTask& task,
                             const Lanes& lanes,
                             std::pmr::memory_resource* memory);

/// Carries the plan out, block by block, so that what lies in slots stays in the first cache.
void run_plan(const Plan& plan,
              const ReduceTask& task,
              const Lanes& lanes,
              std::int64_t n_lanes,
              bool is_streaming);

}  // namespace unisono::kernels
