#pragma once

#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/nccl/gpu_context.h"
#include "unisono/engine/nccl/nccl_api.h"
#include "unisono/engine/nccl/nccl_library.h"

namespace unisono::engine::nccl {

/// NCCL's form of an element of a Unisono type: `per_element` values of `type`.
struct Elements {
  ncclDataType_t type;
  std::int64_t per_element;
};

/// Returns the form for data that is only moved: bytes.
[[nodiscard]] Elements bytes_of(DType dtype);

/// NCCL's element type and operation of a reduction.
struct Reduction {
  Elements elements;
  ncclRedOp_t op;
};

/// Returns NCCL's type and operation. Throws Error(kInvalidArgument) with the remedy if NCCL has no
/// equivalent; the text contains only the reason.
[[nodiscard]] Reduction find_reduction(DType dtype, ReduceKind kind);

/// Library, communicator and stream for the calls of an operation.
struct CallTarget {
  const NcclLibrary& library;
  ncclComm_t communicator;
  CudaStream stream;
  int rank;
  int world_size;
};

/// Passes the operation to the stream as a group of NCCL calls. Returns the first failure,
/// otherwise the result of the group's end. All ranks must have agreed on the operation, and each
/// pair of ranks on the blocks between the two.
///
/// Contiguous blocks of equal size use NCCL's all_gather or reduce_scatter; other blocks use a
/// broadcast or a reduce for each rank. Operations without an NCCL collective use send and receive.
[[nodiscard]] ncclResult_t enqueue(const CallTarget& target, const Operation& operation);

}  // namespace unisono::engine::nccl
