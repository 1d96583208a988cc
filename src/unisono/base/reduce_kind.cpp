#include "unisono/base/reduce_kind.h"

#include "unisono/base/dtype.h"

namespace unisono {

const char* to_string(ReduceKind kind) noexcept {
  switch (kind) {
    case ReduceKind::kSum:
      return "sum";
    case ReduceKind::kAvg:
      return "avg";
    case ReduceKind::kProduct:
      return "product";
    case ReduceKind::kMin:
      return "min";
    case ReduceKind::kMax:
      return "max";
    case ReduceKind::kBand:
      return "band";
    case ReduceKind::kBor:
      return "bor";
    case ReduceKind::kBxor:
      return "bxor";
    case ReduceKind::kPremulSum:
      return "premul_sum";
    case ReduceKind::kUser:
      return "user";
  }
  return "unknown reduction";
}

DType partial_dtype(DType dtype, ReduceKind kind) noexcept {
  return kind == ReduceKind::kUser ? dtype : accumulate_dtype(dtype);
}

bool is_compressible(DType dtype, ReduceKind kind) noexcept {
  const bool adds_up =
      kind == ReduceKind::kSum || kind == ReduceKind::kAvg || kind == ReduceKind::kPremulSum;
  return adds_up && partial_dtype(dtype, kind) == DType::kFloat32;
}

}  // namespace unisono
