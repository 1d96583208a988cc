#pragma once

#include <nccl.h>

#include <cstdint>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"

namespace unisono::engine::nccl {

/// What NCCL takes for elements of one of our types: so many of one of its types.
struct Elements {
  ncclDataType_t type;
  std::int64_t per_element;
};

/// For what is only moved: bytes.
[[nodiscard]] Elements bytes_of(DType dtype);

struct Reduction {
  Elements elements;
  ncclRedOp_t op;
};

/// Throws Error(kInvalidArgument) with what to do where NCCL has nothing that does the same; the
/// text says only why.
[[nodiscard]] Reduction find_reduction(DType dtype, ReduceKind kind);

}  // namespace unisono::engine::nccl
