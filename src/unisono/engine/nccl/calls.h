#pragma once

#include <nccl.h>

#include "unisono/engine/nccl/cuda_driver.h"
#include "unisono/engine/nccl/nccl_library.h"
#include "unisono/engine/operation.h"

namespace unisono::engine::nccl {

/// Where the calls of an operation go.
struct CallTarget {
  const NcclLibrary& library;
  ncclComm_t communicator;
  CudaStream stream;
  int rank;
  int world_size;
};

/// Gives the operation to the stream as one group of NCCL's calls, and returns what the group's end
/// has returned, or the first call that failed. All ranks have agreed on the operation, and each
/// pair on the blocks between them.
///
/// Blocks of equal size that lie one after the other are an all_gather or a reduce_scatter of
/// NCCL's; others a broadcast or a reduce for each rank. What NCCL has no collective for is sent
/// and received.
[[nodiscard]] ncclResult_t enqueue(const CallTarget& target, const Operation& operation);

}  // namespace unisono::engine::nccl
