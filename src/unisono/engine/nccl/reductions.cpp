#include "unisono/engine/nccl/reductions.h"

#include <fmt/format.h>
#include <nccl.h>

#include <cstdint>
#include <optional>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/kernels/reduce.h"

namespace unisono::engine::nccl {
namespace {

std::optional<Elements> numbers_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return Elements{ncclInt8, 1};
    case DType::kUInt8:
    case DType::kBool:
      return Elements{ncclUint8, 1};
    case DType::kInt32:
      return Elements{ncclInt32, 1};
    case DType::kUInt32:
      return Elements{ncclUint32, 1};
    case DType::kInt64:
      return Elements{ncclInt64, 1};
    case DType::kUInt64:
      return Elements{ncclUint64, 1};
    case DType::kFloat16:
      return Elements{ncclFloat16, 1};
    case DType::kBFloat16:
      return Elements{ncclBfloat16, 1};
    case DType::kFloat32:
      return Elements{ncclFloat32, 1};
    case DType::kFloat64:
      return Elements{ncclFloat64, 1};
    case DType::kComplex64:
      return Elements{ncclFloat32, 2};
    case DType::kComplex128:
      return Elements{ncclFloat64, 2};
    case DType::kInt16:
    case DType::kUInt16:
      break;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> op_for_numbers(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return ncclSum;
    case ReduceKind::kAvg:
      return ncclAvg;
    case ReduceKind::kProduct:
      return ncclProd;
    case ReduceKind::kMin:
      return ncclMin;
    case ReduceKind::kMax:
      return ncclMax;
    default:
      return std::nullopt;
  }
}

// Of bytes that are 0 or 1.
std::optional<ncclRedOp_t> op_for_bools(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
    case ReduceKind::kMax:
    case ReduceKind::kBor:
      return ncclMax;
    case ReduceKind::kProduct:
    case ReduceKind::kMin:
    case ReduceKind::kBand:
      return ncclMin;
    default:
      return std::nullopt;
  }
}

// Of real and imaginary parts, each by itself.
std::optional<ncclRedOp_t> op_for_complex(ReduceKind kind) {
  return kind == ReduceKind::kSum || kind == ReduceKind::kAvg ? op_for_numbers(kind) : std::nullopt;
}

std::optional<ncclRedOp_t> find_op(DType dtype, ReduceKind kind) {
  switch (dtype) {
    case DType::kBool:
      return op_for_bools(kind);
    case DType::kComplex64:
    case DType::kComplex128:
      return op_for_complex(kind);
    default:
      return op_for_numbers(kind);
  }
}

}  // namespace

Elements bytes_of(DType dtype) {
  return {.type = ncclUint8, .per_element = static_cast<std::int64_t>(size_of(dtype))};
}

Reduction find_reduction(DType dtype, ReduceKind kind) {
  kernels::check_reduction(dtype, kind);
  const std::optional<Elements> elements = numbers_of(dtype);
  const std::optional<ncclRedOp_t> op = find_op(dtype, kind);
  if (!elements || !op) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("NCCL has no {} of {}; copy the buffer to the CPU, where this group "
                            "has it",
                            to_string(kind),
                            to_string(dtype)));
  }
  return {.elements = *elements, .op = *op};
}

}  // namespace unisono::engine::nccl
