#pragma once

#include <nccl.h>

#include "unisono/base/deadline.h"
#include "unisono/engine/nccl/nccl_library.h"

namespace unisono::engine::nccl {

/// A communicator of NCCL that never blocks. The GPU is current in all calls.
class Communicator {
 public:
  /// Begins to make it: is_settled() tells when it is there. All ranks give the id that rank 0 has
  /// made.
  Communicator(const NcclLibrary& library, const ncclUniqueId& id, int rank, int world_size);

  /// Aborts, unless it was closed.
  ~Communicator() { abort(); }

  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  Communicator(Communicator&&) = delete;
  Communicator& operator=(Communicator&&) = delete;

  [[nodiscard]] ncclComm_t get() const { return communicator_; }

  /// Whether NCCL has taken all that it was given; the stream may still be at it. Does not wait.
  ///
  /// Throws Error(kPeerLost) with NCCL's words if another rank or the network has failed,
  /// Error(kInvalidArgument) if NCCL was used wrongly, else Error(kSystem).
  [[nodiscard]] bool is_settled() const;

  /// Throws the same for what a call has returned.
  void check(ncclResult_t result) const;

  /// Ends what is under way, here: the other ranks are not told.
  void abort() noexcept;

  /// In good order, with all other ranks; aborts where that takes longer.
  void close(Deadline deadline) noexcept;

 private:
  const NcclLibrary& library_;
  ncclComm_t communicator_ = nullptr;
};

}  // namespace unisono::engine::nccl
