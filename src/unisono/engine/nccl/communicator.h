#pragma once

#include "unisono/base/deadline.h"
#include "unisono/engine/nccl/nccl_api.h"
#include "unisono/engine/nccl/nccl_library.h"

namespace unisono::engine::nccl {

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
  /// kInvalidArgument for invalid use of NCCL, otherwise kSystem. If CUDA has failed before the
  /// communicator was complete, the text has the versions of NCCL and of the driver's CUDA, because
  /// NCCL does not work with an older driver.
  [[nodiscard]] bool is_settled();

  /// Throws the same errors for the result of a call.
  void check(ncclResult_t result) const;

  /// Ends the operations in progress on this rank. Does not notify other ranks.
  void abort() noexcept;

  /// Closes the communicator together with all other ranks; aborts it after the deadline.
  void close(Deadline deadline) noexcept;

 private:
  const NcclLibrary& library_;
  ncclComm_t communicator_ = nullptr;
  bool is_complete_ = false;  // All ranks have made the communicator.
};

}  // namespace unisono::engine::nccl
