// A libnccl.so.2 whose ranks are threads of one process and whose GPUs belong to the fake
// libcuda.so.1. The library really moves and reduces data in the order of the streams, and waits
// for ranks that are late. For calls that don't fit, for which NCCL would write undefined data, the
// library fails. The library tests the callers of NCCL, not NVIDIA's library.
//
// FAKE_GPU_FAULT makes operations hang ("hang"), communicators never become ready
// ("no_communicator") or fail as with a driver for an older CUDA ("old_driver"), or rank 0 detect a
// remote error ("remote_error"). FAKE_NCCL_VERSION replaces the version.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/engine/nccl/nccl_api.h"

#include "fake_calls.h"
#include "fake_clique.h"
#include "fake_cuda.h"

namespace {

using fake_nccl::Call;
using fake_nccl::Clique;
using fake_nccl::has_fault;
using fake_nccl::Kind;

std::atomic<int> n_aborted = 0;
thread_local std::string last_error;

thread_local int depth = 0;
thread_local std::vector<Call> calls_of_group;
thread_local ncclComm* comm_of_group = nullptr;
thread_local void* stream_of_group = nullptr;

ncclResult_t note(ncclComm* comm, cudaStream_t stream, const Call& call) {
  if (depth == 0 || fake_cuda::current_device() < 0) {
    last_error = "a call outside a group, or without a device";
    return ncclInvalidUsage;
  }
  comm_of_group = comm;
  stream_of_group = stream;
  calls_of_group.push_back(call);
  return ncclSuccess;
}

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
  static std::map<std::string, std::shared_ptr<Clique>> all;
  return all;
}

std::mutex cliques_mutex;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NCCL's names.
#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED int fake_nccl_n_aborted() {
  return n_aborted;
}

EXPORTED ncclResult_t ncclGetVersion(int* version) {
  const char* const text = std::getenv("FAKE_NCCL_VERSION");
  *version = text == nullptr ? 22703 : std::atoi(text);
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> n_ids = 0;
  *id = {};
  const std::string text = "id " + std::to_string(++n_ids);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->size != sizeof(ncclConfig_t) || config->magic != 0xcafebeef ||
      config->version != 21400 || config->blocking != 0 ||
      std::string(id.internal).rfind("id ", 0) != 0) {
    last_error = "a communicator that blocks, a config of another layout, or an unknown id";
    return ncclInvalidArgument;
  }
  const std::lock_guard lock(cliques_mutex);
  std::shared_ptr<Clique>& clique = cliques()[id.internal];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->world_size = n_ranks;
  }
  // Streams may use communicators until the process ends.
  static std::vector<std::unique_ptr<ncclComm>> all;
  *comm = all.emplace_back(std::make_unique<ncclComm>()).get();
  (*comm)->clique = clique;
  (*comm)->rank = rank;
  const std::lock_guard own_lock(clique->mutex);
  clique->devices[rank] = fake_cuda::current_device();
  return ncclInProgress;
}

EXPORTED ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  Clique& clique = *comm->clique;
  if (has_fault("old_driver")) {
    last_error = "Cuda failure 35 'CUDA driver version is insufficient for CUDA runtime version'";
    comm->state = ncclUnhandledCudaError;
  }
  if (comm->state == ncclInProgress && !has_fault("no_communicator")) {
    const std::lock_guard lock(clique.mutex);
    std::set<int> devices;
    for (const auto& [rank, device] : clique.devices) {
      devices.insert(device);
    }
    if (clique.devices.size() == static_cast<std::size_t>(clique.world_size)) {
      const bool is_duplicate = devices.size() != clique.devices.size();
      last_error = is_duplicate ? "Duplicate GPU detected" : "";
      comm->state = is_duplicate ? ncclInvalidUsage : ncclSuccess;
    }
  }
  *state = comm->state;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommFinalize(ncclComm_t /*comm*/) {
  return ncclSuccess;
}

// Keeps the communicator, which streams may still use.
EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t /*comm*/) {
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->is_aborted = true;
  ++n_aborted;
  return ncclSuccess;
}

EXPORTED const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError          ? "remote process exited or there was a network error"
         : result == ncclInvalidUsage       ? "invalid usage"
         : result == ncclInvalidArgument    ? "invalid argument"
         : result == ncclUnhandledCudaError ? "unhandled cuda error"
                                            : "an error";
}

EXPORTED const char* ncclGetLastError(ncclComm_t /*comm*/) {
  return last_error.c_str();
}

EXPORTED ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclGroupEnd() {
  --depth;
  if (comm_of_group == nullptr) {
    return ncclSuccess;
  }
  ncclComm* const comm = std::exchange(comm_of_group, nullptr);
  std::vector<Call> calls = std::exchange(calls_of_group, {});
  const auto n_messages = std::count_if(calls.begin(), calls.end(), fake_nccl::is_message);
  if (n_messages > 0) {
    if (n_messages < std::ssize(calls)) {
      last_error = "messages and collective calls in one group, which the fake does not take";
      return ncclInvalidUsage;
    }
    fake_cuda::enqueue(stream_of_group,
                       [comm, calls = std::move(calls)] { exchange(*comm, calls); });
    return ncclSuccess;
  }
  const std::size_t number = comm->n_groups++;
  {
    const std::lock_guard lock(comm->clique->mutex);
    auto& group = comm->clique->groups[number];
    group.resize(static_cast<std::size_t>(comm->clique->world_size));
    group[static_cast<std::size_t>(comm->rank)] = std::move(calls);
  }
  fake_cuda::enqueue(stream_of_group, [comm, number] { fake_nccl::meet(*comm, number); });
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclAllReduce(const void* in,
                                    void* out,
                                    std::size_t count,
                                    ncclDataType_t type,
                                    ncclRedOp_t op,
                                    ncclComm_t comm,
                                    cudaStream_t stream) {
  return note(comm, stream, {Kind::kAllReduce, in, out, count, type, op});
}

EXPORTED ncclResult_t ncclReduce(const void* in,
                                 void* out,
                                 std::size_t count,
                                 ncclDataType_t type,
                                 ncclRedOp_t op,
                                 int root,
                                 ncclComm_t comm,
                                 cudaStream_t stream) {
  return note(comm, stream, {Kind::kReduce, in, out, count, type, op, root});
}

EXPORTED ncclResult_t ncclBroadcast(const void* in,
                                    void* out,
                                    std::size_t count,
                                    ncclDataType_t type,
                                    int root,
                                    ncclComm_t comm,
                                    cudaStream_t stream) {
  return note(comm, stream, {Kind::kBroadcast, in, out, count, type, ncclSum, root});
}

EXPORTED ncclResult_t ncclAllGather(const void* in,
                                    void* out,
                                    std::size_t count,
                                    ncclDataType_t type,
                                    ncclComm_t comm,
                                    cudaStream_t stream) {
  return note(comm, stream, {Kind::kAllGather, in, out, count, type});
}

EXPORTED ncclResult_t ncclReduceScatter(const void* in,
                                        void* out,
                                        std::size_t count,
                                        ncclDataType_t type,
                                        ncclRedOp_t op,
                                        ncclComm_t comm,
                                        cudaStream_t stream) {
  return note(comm, stream, {Kind::kReduceScatter, in, out, count, type, op});
}

EXPORTED ncclResult_t ncclSend(const void* in,
                               std::size_t count,
                               ncclDataType_t type,
                               int peer,
                               ncclComm_t comm,
                               cudaStream_t stream) {
  return note(comm, stream, {Kind::kSend, in, nullptr, count, type, ncclSum, peer});
}

EXPORTED ncclResult_t ncclRecv(void* out,
                               std::size_t count,
                               ncclDataType_t type,
                               int peer,
                               ncclComm_t comm,
                               cudaStream_t stream) {
  return note(comm, stream, {Kind::kRecv, nullptr, out, count, type, ncclSum, peer});
}

// NOLINTEND(readability-identifier-naming)
