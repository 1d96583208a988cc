#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {

/// The element representation of a reduction, as the passes process it.
struct Lanes {
  DType dtype;
  LaneOp op;
  /// Lanes per element: 2 for complex numbers (1 for kUser); the size of an integer in bytes for
  /// bitwise operations.
  int per_element;

  /// Returns the size of a lane of an input or output in bytes.
  [[nodiscard]] std::size_t size(bool is_partial) const {
    return size_of(is_partial ? partial_dtype() : dtype) / (is_complex_product() ? 2 : 1);
  }

  /// Returns true if elements differ from partial values: by their type, or because elements are
  /// not scaled yet.
  [[nodiscard]] bool are_partials_apart() const {
    return partial_dtype() != dtype || op == LaneOp::kScaledSum;
  }

 private:
  [[nodiscard]] DType partial_dtype() const {
    return op == LaneOp::kUser ? dtype : accumulate_dtype(dtype);
  }

  [[nodiscard]] bool is_complex_product() const {
    const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
    return is_complex && op == LaneOp::kProduct;
  }
};

[[nodiscard]] inline LaneOp lane_op(DType dtype, ReduceKind kind) {
  const bool is_bool = dtype == DType::kBool;
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kAvg:
      break;
    case ReduceKind::kProduct:
      return is_bool ? LaneOp::kMin : LaneOp::kProduct;
    case ReduceKind::kMin:
      return LaneOp::kMin;
    case ReduceKind::kMax:
      return LaneOp::kMax;
    case ReduceKind::kBand:
      return is_bool ? LaneOp::kMin : LaneOp::kBand;
    case ReduceKind::kBor:
      return is_bool ? LaneOp::kMax : LaneOp::kBor;
    case ReduceKind::kBxor:
      return LaneOp::kBxor;
    case ReduceKind::kPremulSum:
      return LaneOp::kScaledSum;
    case ReduceKind::kUser:
      return LaneOp::kUser;
  }
  return is_bool ? LaneOp::kMax : LaneOp::kSum;
}

[[nodiscard]] inline bool is_bitwise(LaneOp op) {
  return op == LaneOp::kBand || op == LaneOp::kBor || op == LaneOp::kBxor;
}

[[nodiscard]] inline Lanes lanes_of(DType dtype, ReduceKind kind) {
  const LaneOp op = lane_op(dtype, kind);
  const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  if (is_complex && (op == LaneOp::kSum || op == LaneOp::kScaledSum)) {
    const DType part = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    return {.dtype = part, .op = op, .per_element = 2};
  }
  if (is_bitwise(op) && dtype != DType::kBool) [[unlikely]] {
    return {.dtype = DType::kUInt8, .op = op, .per_element = static_cast<int>(size_of(dtype))};
  }
  return {.dtype = dtype, .op = op, .per_element = is_complex && op == LaneOp::kProduct ? 2 : 1};
}

/// Returns the divisor of the task's result; 1 unless the result is a complete average.
[[nodiscard]] inline int divisor_of(const ReduceTask& task) {
  return task.kind == ReduceKind::kAvg && !task.output_is_partial ? task.divisor : 1;
}

/// Inputs [from, to), combined in the order of the left-balanced tree, which is the order of the
/// passes. Empty if a value is not such a combination.
struct Subtree {
  int from = 0;
  int to = 0;

  [[nodiscard]] int size() const { return to - from; }
};

/// Returns the subtree of the combination of two values; empty if the combination is not a subtree.
[[nodiscard]] inline Subtree join(Subtree left, Subtree right) {
  const bool is_adjacent = left.size() > 0 && right.size() > 0 && left.to == right.from;
  const auto n_before_last = static_cast<unsigned>(left.size() + right.size() - 1);
  if (!is_adjacent || static_cast<unsigned>(left.size()) != std::bit_floor(n_before_last)) {
    return {};
  }
  return {.from = left.from, .to = right.to};
}

/// One pass of a plan. Operands and result are places: the task's inputs come first, then the
/// scratch slots.
struct Instruction {
  Pass pass;
  int n_operands;
  std::array<int, kMaxPassInputs> operands;
  int result;
};

/// Result place of a plan's last instruction: the task's outputs.
inline constexpr int kToOutputs = -1;

/// The steps of a task as a sequence of passes over blocks. Slots are reused after the last use of
/// their value.
struct Plan {
  std::pmr::vector<Instruction> instructions;
  int n_slots = 0;
};

/// Returns a plan that combines as many inputs at once as the steps and the passes permit. Omits
/// steps that the result does not need.
[[nodiscard]] Plan make_plan(const ReduceTask& task,
                             const Lanes& lanes,
                             std::pmr::memory_resource* memory);

/// Executes the plan block by block, so that the slots stay in the first-level cache.
void run_plan(const Plan& plan,
              const ReduceTask& task,
              const Lanes& lanes,
              std::int64_t n_lanes,
              bool is_streaming);

}  // namespace unisono::kernels
