#pragma once

#include <string>

#include "unisono/engine/nccl/nccl_api.h"

namespace unisono::engine::nccl {

/// NVIDIA's libnccl.so.2: file, version, and the functions that this project uses.
struct NcclLibrary {
  std::string file;  ///< Path of the loaded file.
  int version;       ///< From ncclGetVersion: 22703 for release 2.27.3.
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

/// Returns the library. The first call loads it for the lifetime of the process: the file that
/// the process has loaded already, for example with LibTorch; otherwise the file that the dynamic
/// loader finds in LD_LIBRARY_PATH or in the system; otherwise the file of NVIDIA's wheel beside
/// the package torch or unisono. Thread-safe.
///
/// Throws Error(kNotFound) if no file fits. The text names each file with its version and the
/// reason, and the packages to install.
[[nodiscard]] const NcclLibrary& nccl_library();

/// Returns "2.27.3" for a number of ncclGetVersion.
[[nodiscard]] std::string format_version(int version);

/// Returns "NCCL: unhandled cuda error: ...", with NCCL's text about the last error.
[[nodiscard]] std::string describe(const NcclLibrary& library,
                                   ncclResult_t result,
                                   ncclComm_t communicator);

}  // namespace unisono::engine::nccl
