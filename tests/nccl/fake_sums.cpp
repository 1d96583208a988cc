#include "fake_sums.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/kernels/reduce.h"

namespace fake_nccl {
namespace {

using unisono::DType;
using unisono::ReduceKind;

std::optional<DType> dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return DType::kInt8;
    case ncclUint8:
      return DType::kUInt8;
    case ncclInt32:
      return DType::kInt32;
    case ncclUint32:
      return DType::kUInt32;
    case ncclInt64:
      return DType::kInt64;
    case ncclUint64:
      return DType::kUInt64;
    case ncclFloat16:
      return DType::kFloat16;
    case ncclBfloat16:
      return DType::kBFloat16;
    case ncclFloat32:
      return DType::kFloat32;
    case ncclFloat64:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

std::optional<ReduceKind> kind_of(ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
      return ReduceKind::kSum;
    case ncclProd:
      return ReduceKind::kProduct;
    case ncclMax:
      return ReduceKind::kMax;
    case ncclMin:
      return ReduceKind::kMin;
    case ncclAvg:
      return ReduceKind::kAvg;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::size_t size_of(ncclDataType_t type) {
  return unisono::size_of(dtype_of(type).value());
}

std::optional<std::vector<std::byte>> combine(const std::vector<const std::byte*>& ranks,
                                              std::size_t count,
                                              ncclDataType_t type,
                                              ncclRedOp_t op) {
  const std::optional<DType> dtype = dtype_of(type);
  const std::optional<ReduceKind> kind = kind_of(op);
  if (!dtype || !kind) {
    return std::nullopt;
  }
  std::vector<unisono::kernels::ReduceInput> inputs;
  inputs.reserve(ranks.size());
  for (const std::byte* const rank : ranks) {
    inputs.push_back({.data = rank, .is_partial = false});
  }
  const unisono::collective::RankRange all{.lo = 0, .hi = static_cast<int>(ranks.size())};
  const auto steps = unisono::collective::reduce_steps(unisono::collective::leaves_of(all), all);
  std::vector<std::byte> result(count * unisono::size_of(*dtype));
  void* const output = result.data();
  unisono::kernels::reduce({.dtype = *dtype,
                            .kind = *kind,
                            .inputs = inputs,
                            .steps = steps,
                            .outputs = std::span(&output, 1),
                            .divisor = all.hi},
                           static_cast<std::int64_t>(count));
  return result;
}

}  // namespace fake_nccl
