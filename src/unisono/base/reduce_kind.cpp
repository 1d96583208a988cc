#include "unisono/base/reduce_kind.h"

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
  }
  return "unknown reduction";
}

}  // namespace unisono
