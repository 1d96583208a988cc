#pragma once

#include <nccl.h>

#include <string>

namespace unisono::engine::nccl {

/// What this project needs of NVIDIA's libnccl.so.2.
struct NcclLibrary {
  decltype(&ncclGetUniqueId) make_id;
  decltype(&ncclCommInitRankConfig) init;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclCommGetAsyncError) state;
  decltype(&ncclGetErrorString) error_text;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGroupStart) begin_group;
  decltype(&ncclGroupEnd) end_group;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduce) reduce;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
};

/// Loads it, when it is first called, for good. Thread-safe.
///
/// Throws Error(kNotFound) with the loader's reason.
[[nodiscard]] const NcclLibrary& nccl_library();

/// "unhandled cuda error: ...", with what NCCL says of the last error.
[[nodiscard]] std::string describe(const NcclLibrary& library,
                                   ncclResult_t result,
                                   ncclComm_t communicator);

}  // namespace unisono::engine::nccl
