#pragma once

#include <cstddef>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/pass.h"
#include "unisono/kernels/reduce.h"

namespace unisono::kernels {

/// A reduction as the passes know it.
struct Lanes {
  DType dtype;
  LaneOp op;
  /// 2 for complex numbers, save for the user's function; an integer's bytes where bits are
  /// combined.
  int per_element;

  /// Bytes of a lane in an input or output.
  [[nodiscard]] std::size_t size(bool is_partial) const {
    return size_of(is_partial ? partial_dtype() : dtype) / (is_complex_product() ? 2 : 1);
  }

  /// Whether elements are something else than partial values: of another type, or not scaled yet.
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

/// What the task's result is divided by; 1 unless it is a finished average.
[[nodiscard]] inline int divisor_of(const ReduceTask& task) {
  return task.kind == ReduceKind::kAvg && !task.output_is_partial ? task.divisor : 1;
}

}  // namespace unisono::kernels
