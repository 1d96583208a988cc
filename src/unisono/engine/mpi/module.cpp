// A module: the functions of an MPI that unisono uses, behind an interface that is the same for all
// MPIs. See module.h.

#include "unisono/engine/mpi/module.h"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <span>

namespace unisono::engine::mpi {
namespace {

// The process that initialized the MPI by start(). A child of fork() must not finalize it.
std::atomic<pid_t> owner = -1;
std::atomic<bool> has_given_up = false;

// Held while move() is in the MPI, and permanently after MPI_Finalize.
std::mutex moving;

// A Handle contains a request or communicator of the MPI at hand, which is a number or a pointer.
template <class T>
T value_of(const Handle& handle) {
  T value{};
  const auto bytes = std::as_writable_bytes(std::span<T, 1>(&value, 1));
  static_assert(decltype(bytes)::extent <= sizeof(handle.bytes));
  std::copy_n(handle.bytes.begin(), bytes.size(), bytes.begin());
  return value;
}

template <class T>
void set(Handle* handle, T value) {
  const auto bytes = std::as_bytes(std::span<T, 1>(&value, 1));
  std::ranges::copy(bytes, handle->bytes.begin());
}

// Elements that are only moved count as plain bytes of the same size.
MPI_Datatype moved_type(DType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    default:
      return MPI_C_DOUBLE_COMPLEX;
  }
}

MPI_Datatype reduced_type(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return MPI_INT8_T;
    case DType::kBool:  // The bytes of a bool are 0 and 1.
    case DType::kUInt8:
      return MPI_UINT8_T;
    case DType::kInt16:
      return MPI_INT16_T;
    case DType::kUInt16:
      return MPI_UINT16_T;
    case DType::kInt32:
      return MPI_INT32_T;
    case DType::kUInt32:
      return MPI_UINT32_T;
    case DType::kInt64:
      return MPI_INT64_T;
    case DType::kUInt64:
      return MPI_UINT64_T;
    case DType::kFloat32:
      return MPI_FLOAT;
    case DType::kFloat64:
      return MPI_DOUBLE;
    case DType::kComplex64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::kComplex128:
      return MPI_C_DOUBLE_COMPLEX;
    case DType::kFloat16:
    case DType::kBFloat16:
      break;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op op_of(ReduceKind kind, DType dtype) {
  const bool is_bool = dtype == DType::kBool;
  switch (kind) {
    case ReduceKind::kSum:
      return is_bool ? MPI_BOR : MPI_SUM;
    case ReduceKind::kAvg:
      return MPI_SUM;
    case ReduceKind::kProduct:
      return is_bool ? MPI_BAND : MPI_PROD;
    case ReduceKind::kMin:
      return MPI_MIN;
    case ReduceKind::kMax:
      return MPI_MAX;
    case ReduceKind::kBand:
      return MPI_BAND;
    case ReduceKind::kBor:
      return MPI_BOR;
    case ReduceKind::kBxor:
      return MPI_BXOR;
    case ReduceKind::kPremulSum:
    case ReduceKind::kUser:
      break;
  }
  return MPI_OP_NULL;
}

// Returns whether the MPI is initialized and not yet finalized, by this module or by the program.
bool is_running() {
  int is_initialized = 0;
  int is_finalized = 0;
  return MPI_Initialized(&is_initialized) == MPI_SUCCESS && is_initialized != 0 &&
         MPI_Finalized(&is_finalized) == MPI_SUCCESS && is_finalized == 0;
}

void finalize_at_exit() {
  if (owner == ::getpid() && !has_given_up && is_running()) {
    moving.lock();
    (void)MPI_Finalize();
  }
}

int start(MpiRuntime* started) {
  if (!is_running()) {
    int provided = MPI_THREAD_SINGLE;
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided)) {
      return error;
    }
    owner = ::getpid();
    (void)std::atexit(finalize_at_exit);
    (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }
  int level = MPI_THREAD_SINGLE;
  int* largest_tag = nullptr;
  int has_largest_tag = 0;
  for (const int error :
       {MPI_Comm_rank(MPI_COMM_WORLD, &started->rank),
        MPI_Comm_size(MPI_COMM_WORLD, &started->world_size),
        MPI_Query_thread(&level),
        MPI_Comm_get_attr(
            MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest_tag), &has_largest_tag)}) {
    if (error != MPI_SUCCESS) {
      return error;
    }
  }
  constexpr int kLeastLargestTag = 32767;  // Guaranteed by every MPI.
  started->largest_tag = has_largest_tag != 0 ? *largest_tag : kLeastLargestTag;
  started->is_thread_safe = level == MPI_THREAD_MULTIPLE;
  started->is_for_any_thread = level >= MPI_THREAD_SERIALIZED;
  return MPI_SUCCESS;
}

int join(const int* ranks, int n_ranks, int tag, Handle* communicator) {
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  if (const int error = MPI_Comm_group(MPI_COMM_WORLD, &world)) {
    return error;
  }
  int error = MPI_Group_incl(world, n_ranks, ranks, &group);
  MPI_Comm made = MPI_COMM_NULL;
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &made);
    (void)MPI_Group_free(&group);
  }
  (void)MPI_Group_free(&world);
  if (error == MPI_SUCCESS) {
    error = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  }
  set(communicator, made);
  return error;
}

int leave(Handle* communicator) {
  auto made = value_of<MPI_Comm>(*communicator);
  return is_running() && !has_given_up ? MPI_Comm_free(&made) : MPI_SUCCESS;
}

int begin_reduction(MPI_Comm comm, const CollectiveCall& call, MPI_Request* request) {
  const MPI_Datatype type = reduced_type(call.dtype);
  const MPI_Op op = op_of(call.reduce, call.dtype);
  const void* const send = call.is_in_place ? MPI_IN_PLACE : call.send;
  if (call.collective == Collective::kAllReduce) {
    return MPI_Iallreduce(send, call.receive, call.count, type, op, comm, request);
  }
  if (call.collective == Collective::kReduce) {
    return MPI_Ireduce(send, call.receive, call.count, type, op, call.root, comm, request);
  }
  return !call.has_own_counts
             ? MPI_Ireduce_scatter_block(send, call.receive, call.count, type, op, comm, request)
             : MPI_Ireduce_scatter(
                   send, call.receive, call.receive_counts, type, op, comm, request);
}

int begin_equal_blocks(MPI_Comm comm, const CollectiveCall& call, MPI_Request* request) {
  const MPI_Datatype type = moved_type(call.dtype);
  const int n = call.count;
  const void* const send = call.is_in_place ? MPI_IN_PLACE : call.send;
  switch (call.collective) {
    case Collective::kAllGather:
      return MPI_Iallgather(send, n, type, call.receive, n, type, comm, request);
    case Collective::kGather:
      return MPI_Igather(send, n, type, call.receive, n, type, call.root, comm, request);
    case Collective::kScatter:
      return MPI_Iscatter(call.send,
                          n,
                          type,
                          call.is_in_place ? MPI_IN_PLACE : call.receive,
                          n,
                          type,
                          call.root,
                          comm,
                          request);
    default:
      return MPI_Ialltoall(send, n, type, call.receive, n, type, comm, request);
  }
}

int begin_blocks(MPI_Comm comm, const CollectiveCall& call, MPI_Request* request) {
  const MPI_Datatype type = moved_type(call.dtype);
  const int n = call.count;
  const void* const send = call.is_in_place ? MPI_IN_PLACE : call.send;
  switch (call.collective) {
    case Collective::kAllGather:
      return MPI_Iallgatherv(send,
                             n,
                             type,
                             call.receive,
                             call.receive_counts,
                             call.receive_offsets,
                             type,
                             comm,
                             request);
    case Collective::kGather:
      return MPI_Igatherv(send,
                          n,
                          type,
                          call.receive,
                          call.receive_counts,
                          call.receive_offsets,
                          type,
                          call.root,
                          comm,
                          request);
    case Collective::kScatter:
      return MPI_Iscatterv(call.send,
                           call.send_counts,
                           call.send_offsets,
                           type,
                           call.is_in_place ? MPI_IN_PLACE : call.receive,
                           n,
                           type,
                           call.root,
                           comm,
                           request);
    default:
      return MPI_Ialltoallv(send,
                            call.send_counts,
                            call.send_offsets,
                            type,
                            call.receive,
                            call.receive_counts,
                            call.receive_offsets,
                            type,
                            comm,
                            request);
  }
}

int begin(const Handle* communicator, const CollectiveCall* call, Handle* request) {
  auto comm = value_of<MPI_Comm>(*communicator);
  MPI_Request made = MPI_REQUEST_NULL;
  int error = MPI_SUCCESS;
  switch (call->collective) {
    case Collective::kBarrier:
      error = MPI_Ibarrier(comm, &made);
      break;
    case Collective::kBroadcast:
      error =
          MPI_Ibcast(call->receive, call->count, moved_type(call->dtype), call->root, comm, &made);
      break;
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kReduceScatter:
      error = begin_reduction(comm, *call, &made);
      break;
    default:
      error = call->has_own_counts ? begin_blocks(comm, *call, &made)
                                   : begin_equal_blocks(comm, *call, &made);
  }
  // NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): advance() waits for it.
  set(request, made);
  return error;
}

int advance(Handle* request, bool* is_done) {
  auto pending = value_of<MPI_Request>(*request);
  int flag = 0;
  const int error = MPI_Test(&pending, &flag, MPI_STATUS_IGNORE);
  set(request, pending);
  *is_done = flag != 0;
  return error;
}

void move() {
  const std::unique_lock lock(moving, std::try_to_lock);
  int has_message = 0;
  if (lock && is_running() && !has_given_up) {
    (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &has_message, MPI_STATUS_IGNORE);
  }
}

void give_up() {
  has_given_up = true;
}

void describe(int error, char* text, int n_bytes) {
  std::array<char, MPI_MAX_ERROR_STRING + 1> whole{};
  int n_chars = 0;
  if (MPI_Error_string(error, whole.data(), &n_chars) != MPI_SUCCESS) {
    n_chars = 0;
  }
  const int n = std::min(n_chars, n_bytes - 1);
  std::copy_n(whole.data(), n, text);
  text[n] = '\0';
}

constexpr Module kModule{.start = start,
                         .join = join,
                         .leave = leave,
                         .begin = begin,
                         .advance = advance,
                         .move = move,
                         .give_up = give_up,
                         .describe = describe};

}  // namespace
}  // namespace unisono::engine::mpi

extern "C" __attribute__((visibility("default"))) const unisono::engine::mpi::Module*
unisono_mpi_module() {
  return &unisono::engine::mpi::kModule;
}
