#pragma once

#include <nccl.h>

#include <string>

#include "unisono/base/deadline.h"

namespace unisono::engine::nccl {

/// The functions of NVIDIA's libnccl.so.2 that this project uses.
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

/// Returns the library. The first call loads it for the lifetime of the process. Thread-safe.
///
/// Throws Error(kNotFound) with the loader's reason.
[[nodiscard]] const NcclLibrary& nccl_library();

/// Returns "NCCL: unhandled cuda error: ...", with NCCL's text about the last error.
[[nodiscard]] std::string describe(const NcclLibrary& library,
                                   ncclResult_t result,
                                   ncclComm_t communicator);

/// A non-blocking communicator of NCCL. Owned by NcclEngine; used by the thread that executes an
/// operation. The caller must make the GPU current before each call.
class Communicator {
 public:
  /// Begins to make the communicator; is_settled() returns true when it is complete. All ranks pass
  /// the id that rank 0 has made.
  Communicator(const NcclLibrary& library, const ncclUniqueId& id, int rank, int world_size);

  /// Aborts the communicator, unless it is closed.
  ~Communicator() { abort(); }

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  Communicator(Communicator&&) = delete;
  Communicator& operator=(Communicator&&) = delete;

  [[nodiscard]] ncclComm_t get() const { return communicator_; }

  /// Returns whether NCCL has processed all calls; the stream may still execute them. Does not
  /// wait.
  ///
  /// Throws Error with NCCL's text: kPeerLost if another rank or the network has failed,
  /// kInvalidArgument for invalid use of NCCL, otherwise kSystem.
  [[nodiscard]] bool is_settled() const;

  /// Throws the same errors for the result of a call.
  void check(ncclResult_t result) const;

  /// Ends the operations in progress on this rank. Does not notify other ranks.
  void abort() noexcept;

  /// Closes the communicator together with all other ranks; aborts it after the deadline.
  void close(Deadline deadline) noexcept;

 private:
  const NcclLibrary& library_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace unisono::engine::nccl
