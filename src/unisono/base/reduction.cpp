#include "unisono/base/reduction.h"

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

const char* to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kOneShot:
      return "one_shot";
    case Algorithm::kTwoShot:
      return "two_shot";
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kChunkedRing:
      return "chunked_ring";
    case Algorithm::kParameterServer:
      return "parameter_server";
  }
  return "unknown algorithm";
}

}  // namespace unisono
