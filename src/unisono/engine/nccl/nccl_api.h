#pragma once

// The part of NCCL's C interface that this project uses. The names, values and layouts are those of
// NCCL 2.14; later releases of NCCL 2 keep them. With these declarations a build needs no header of
// NVIDIA, and a program loads the library only when a user requests backend `nccl`.

#include <cstddef>

#include <climits>

// NOLINTBEGIN(readability-identifier-naming): NCCL's names.
extern "C" {

/// Stream of CUDA's runtime: the same handle as the driver's stream.
using cudaStream_t = struct CUstream_st*;

/// A communicator.
using ncclComm_t = struct ncclComm*;

/// Name of a communicator. One rank makes the name, and all ranks pass it to
/// ncclCommInitRankConfig.
struct ncclUniqueId {
  char internal[128];
};

/// Result of a call, and state of a communicator.
enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};

/// Reduction of a collective operation.
enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

/// Type of the elements.
enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
};

/// Options of a communicator, in the form of release 2.14. A later release takes its defaults for
/// options that `version` does not have.
struct ncclConfig_t {
  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;
  int blocking = INT_MIN;  ///< 0: calls return before they are complete. INT_MIN: the default.
  /// Padding in release 2.14, and an option of later releases.
  int reserved = INT_MIN;
};

static_assert(sizeof(ncclUniqueId) == 128 && sizeof(ncclConfig_t) == 24, "NCCL's layout");

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* in,
                           void* out,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclRedOp_t op,
                           ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduce(const void* in,
                        void* out,
                        std::size_t count,
                        ncclDataType_t type,
                        ncclRedOp_t op,
                        int root,
                        ncclComm_t comm,
                        cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* in,
                           void* out,
                           std::size_t count,
                           ncclDataType_t type,
                           int root,
                           ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclAllGather(const void* in,
                           void* out,
                           std::size_t count,
                           ncclDataType_t type,
                           ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* in,
                               void* out,
                               std::size_t count,
                               ncclDataType_t type,
                               ncclRedOp_t op,
                               ncclComm_t comm,
                               cudaStream_t stream);
ncclResult_t ncclSend(const void* in,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* out,
                      std::size_t count,
                      ncclDataType_t type,
                      int peer,
                      ncclComm_t comm,
                      cudaStream_t stream);

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
