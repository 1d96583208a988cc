// A libnccl.so.2 whose ranks are threads of one process and whose GPUs are the fake libcuda.so.1's.
// It moves and reduces for real, in the order of the streams; a rank that does not come is waited
// for. Where NCCL would hang or write what nobody sent, as for calls that don't fit, it fails. It
// is a test of who calls NCCL, not of NVIDIA's.
//
// FAKE_NCCL_FAULT has operations "hang", communicators never be there ("no_communicator"), or rank
// 0 notice a "remote_error".
#include <driver_types.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_cuda.h"

namespace {

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kRecv };

struct Call {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // Or the root.
};

// What the ranks of a communicator share.
struct Clique {
  std::mutex mutex;
  std::condition_variable changed;
  int world_size = 0;
  std::map<int, int> devices;                                    // By rank.
  std::map<std::size_t, std::vector<std::vector<Call>>> groups;  // By number, then rank.
  std::map<std::size_t, int> n_posted;
  std::map<std::size_t, int> n_computed;
};

std::atomic<int> n_aborted = 0;
thread_local std::string last_error;

bool has_fault(const char* name) {
  const char* const fault = std::getenv("FAKE_NCCL_FAULT");
  return fault != nullptr && std::string(fault) == name;
}

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclBfloat16:
    case ncclFloat16:
      return 2;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

template <class T>
void combine(void* into, const void* from, std::size_t count, ncclRedOp_t op) {
  auto* const a = static_cast<T*>(into);
  const auto* const b = static_cast<const T*>(from);
  for (std::size_t i = 0; i < count; ++i) {
    switch (op) {
      case ncclProd:
        a[i] = static_cast<T>(a[i] * b[i]);
        break;
      case ncclMax:
        a[i] = a[i] < b[i] ? b[i] : a[i];
        break;
      case ncclMin:
        a[i] = b[i] < a[i] ? b[i] : a[i];
        break;
      default:
        a[i] = static_cast<T>(a[i] + b[i]);
    }
  }
}

template <class T>
void divide(void* values, std::size_t count, int divisor) {
  auto* const a = static_cast<T*>(values);
  for (std::size_t i = 0; i < count; ++i) {
    a[i] = static_cast<T>(a[i] / static_cast<T>(divisor));
  }
}

// Calls `function` with an element of the type; false for one that the fake has no arithmetic for.
template <class Function>
bool with_type(ncclDataType_t type, Function&& function) {
  switch (type) {
    case ncclInt8:
      function(std::int8_t{});
      return true;
    case ncclUint8:
      function(std::uint8_t{});
      return true;
    case ncclInt32:
      function(std::int32_t{});
      return true;
    case ncclUint32:
      function(std::uint32_t{});
      return true;
    case ncclInt64:
      function(std::int64_t{});
      return true;
    case ncclUint64:
      function(std::uint64_t{});
      return true;
    case ncclFloat32:
      function(float{});
      return true;
    case ncclFloat64:
      function(double{});
      return true;
    default:
      return false;
  }
}

using Bytes = std::vector<std::byte>;

// A part of the input of a call.
const std::byte* at(const Call& call, std::size_t element) {
  return static_cast<const std::byte*>(call.in) + element * size_of(call.type);
}

// Elements [first, first + count) of these calls' inputs, combined.
std::optional<Bytes> reduce(const std::vector<const Call*>& calls,
                            std::size_t first,
                            std::size_t count) {
  const Call& call = *calls.front();
  Bytes result(at(call, first), at(call, first + count));
  const bool is_known = with_type(call.type, [&](auto element) {
    using T = decltype(element);
    for (std::size_t rank = 1; rank < calls.size(); ++rank) {
      combine<T>(result.data(), at(*calls[rank], first), count, call.op);
    }
    if (call.op == ncclAvg) {
      divide<T>(result.data(), count, static_cast<int>(calls.size()));
    }
  });
  return is_known ? std::optional(result) : std::nullopt;
}

bool is_message(const Call& call) {
  return call.kind == Kind::kSend || call.kind == Kind::kRecv;
}

}  // namespace

// NCCL's name.
struct ncclComm {  // NOLINT(readability-identifier-naming)
  std::shared_ptr<Clique> clique;
  int rank = 0;
  std::size_t n_groups = 0;
  std::atomic<bool> is_aborted = false;
  std::atomic<ncclResult_t> state = ncclInProgress;
};

namespace {

// The result of one call of a rank: nothing, where it has none; fails where calls don't fit.
class Group {
 public:
  Group(const std::vector<std::vector<Call>>& ranks, int self) : ranks_(ranks), self_(self) {}

  struct Write {
    void* to;
    Bytes bytes;
  };

  // Nothing if the calls don't fit.
  [[nodiscard]] std::optional<std::vector<Write>> compute() const {
    std::vector<Write> writes;
    std::size_t n_collectives = 0;
    std::map<int, std::size_t> n_received;
    for (const Call& call : mine()) {
      std::optional<Bytes> bytes;
      if (!is_message(call)) {
        const auto calls = collective(n_collectives++);
        bytes = calls ? of_collective(call, *calls) : std::nullopt;
      } else if (call.kind == Kind::kRecv) {
        bytes = received(call, n_received[call.peer]++);
      } else {
        bytes = n_of(Kind::kRecv, call.peer, self_) == n_of(Kind::kSend, self_, call.peer)
                    ? std::optional(Bytes())
                    : std::nullopt;
      }
      if (!bytes) {
        return std::nullopt;
      }
      writes.push_back({call.out, std::move(*bytes)});
    }
    return writes;
  }

 private:
  [[nodiscard]] const std::vector<Call>& mine() const {
    return ranks_[static_cast<std::size_t>(self_)];
  }

  [[nodiscard]] std::size_t n_of(Kind kind, int rank, int peer) const {
    std::size_t n = 0;
    for (const Call& call : ranks_[static_cast<std::size_t>(rank)]) {
      n += call.kind == kind && call.peer == peer ? 1 : 0;
    }
    return n;
  }

  // The same call of all ranks.
  [[nodiscard]] std::optional<std::vector<const Call*>> collective(std::size_t number) const {
    std::vector<const Call*> calls;
    for (const std::vector<Call>& rank : ranks_) {
      std::size_t n = 0;
      for (const Call& call : rank) {
        if (!is_message(call) && n++ == number) {
          calls.push_back(&call);
        }
      }
    }
    bool fits = calls.size() == ranks_.size();
    for (const Call* const call : calls) {
      fits = fits && call->kind == calls[0]->kind && call->count == calls[0]->count &&
             call->type == calls[0]->type && call->op == calls[0]->op &&
             call->peer == calls[0]->peer;
    }
    return fits ? std::optional(calls) : std::nullopt;
  }

  [[nodiscard]] std::optional<Bytes> of_collective(const Call& call,
                                                   const std::vector<const Call*>& calls) const {
    const auto root = static_cast<std::size_t>(call.peer);
    switch (call.kind) {
      case Kind::kAllReduce:
        return reduce(calls, 0, call.count);
      case Kind::kReduce:
        return call.peer == self_ ? reduce(calls, 0, call.count) : Bytes();
      case Kind::kReduceScatter:
        return reduce(calls, static_cast<std::size_t>(self_) * call.count, call.count);
      case Kind::kBroadcast:
        return Bytes(at(*calls[root], 0), at(*calls[root], call.count));
      default: {
        Bytes all;
        for (const Call* const other : calls) {
          all.insert(all.end(), at(*other, 0), at(*other, call.count));
        }
        return all;
      }
    }
  }

  [[nodiscard]] std::optional<Bytes> received(const Call& call, std::size_t number) const {
    std::size_t n = 0;
    for (const Call& sent : ranks_[static_cast<std::size_t>(call.peer)]) {
      if (sent.kind == Kind::kSend && sent.peer == self_ && n++ == number) {
        return sent.count == call.count && sent.type == call.type
                   ? std::optional(Bytes(at(sent, 0), at(sent, sent.count)))
                   : std::nullopt;
      }
    }
    return std::nullopt;
  }

  const std::vector<std::vector<Call>>& ranks_;
  int self_;
};

// On the thread of the rank's stream.
void carry_out(ncclComm& comm, std::size_t number) {
  Clique& clique = *comm.clique;
  std::unique_lock lock(clique.mutex);
  const auto wait = [&](const std::map<std::size_t, int>& n) {
    while (!comm.is_aborted && (n.at(number) < clique.world_size || has_fault("hang"))) {
      clique.changed.wait_for(lock, std::chrono::milliseconds(5));
    }
    return !comm.is_aborted;
  };
  ++clique.n_posted[number];
  clique.n_computed.emplace(number, 0);
  clique.changed.notify_all();
  if (has_fault("remote_error") && comm.rank == 0) {
    comm.state = ncclRemoteError;
  }
  if (!wait(clique.n_posted) || comm.state == ncclRemoteError) {
    return;
  }
  const auto writes = Group(clique.groups[number], comm.rank).compute();
  ++clique.n_computed[number];
  clique.changed.notify_all();
  if (!writes) {
    comm.state = ncclInvalidArgument;
    return;
  }
  // Buffers may be inputs of the others until all have read them.
  if (!wait(clique.n_computed)) {
    return;
  }
  for (const Group::Write& write : *writes) {
    if (!write.bytes.empty()) {
      std::memcpy(write.to, write.bytes.data(), write.bytes.size());
    }
  }
}

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

EXPORTED ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> n_ids = 0;
  *id = {};
  const std::string text = "id " + std::to_string(++n_ids);
  std::memcpy(id->internal, text.data(), text.size());
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommInitRankConfig(
    ncclComm_t* comm, int n_ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || std::string(id.internal).rfind("id ", 0) != 0) {
    last_error = "a communicator that blocks, or an id that nobody made";
    return ncclInvalidArgument;
  }
  const std::lock_guard lock(cliques_mutex);
  std::shared_ptr<Clique>& clique = cliques()[id.internal];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->world_size = n_ranks;
  }
  // Streams may have them to the end.
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

// The streams may still have it.
EXPORTED ncclResult_t ncclCommDestroy(ncclComm_t /*comm*/) {
  return ncclSuccess;
}

EXPORTED ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->is_aborted = true;
  ++n_aborted;
  return ncclSuccess;
}

EXPORTED const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError       ? "remote process exited or there was a network error"
         : result == ncclInvalidUsage    ? "invalid usage"
         : result == ncclInvalidArgument ? "invalid argument"
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
  const std::size_t number = comm->n_groups++;
  {
    const std::lock_guard lock(comm->clique->mutex);
    auto& group = comm->clique->groups[number];
    group.resize(static_cast<std::size_t>(comm->clique->world_size));
    group[static_cast<std::size_t>(comm->rank)] = std::exchange(calls_of_group, {});
  }
  fake_cuda::enqueue(stream_of_group, [comm, number] { carry_out(*comm, number); });
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
