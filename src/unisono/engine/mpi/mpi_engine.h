#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/mpi/library.h"
#include "unisono/engine/mpi/mpi_operation.h"
#include "unisono/transport/rank_table.h"

namespace unisono::engine::mpi {

/// Executes operations by the MPI's collective operations, under the supervision of the native
/// engine: each begins after all ranks of the node have called. Delegates messages and
/// monitored_barrier() to the native engine.
///
/// Owned by the group. Threads as in Engine. After a failure in an operation of the MPI, the memory
/// of the operation is leaked, and the process has no further operations by the MPI.
class MpiEngine final : public Engine {
 public:
  /// Throws Error(kMismatch) if the MPI's world does not contain the ranks of the roster under the
  /// same numbers.
  MpiEngine(std::shared_ptr<MpiLibrary> library,
            const transport::RankTable& roster,
            std::shared_ptr<SupervisingEngine> native);
  ~MpiEngine() override;
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;
  MpiEngine(MpiEngine&&) = delete;
  MpiEngine& operator=(MpiEngine&&) = delete;

  void execute(const Operation& operation, TimeLimit limit, Caller caller) override;
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override;
  void check(const Operation& operation) const override;

  int pass_message(const MessageCall& call) override { return native_->pass_message(call); }

  void begin_messages(std::span<const MessageCall> calls) override {
    native_->begin_messages(calls);
  }

  void abort(const Error& reason) noexcept override;
  void leave() noexcept override;

 private:
  void abandon(const Operation& operation) noexcept;

  std::shared_ptr<SupervisingEngine> native_;
  MpiGroup group_;
  std::unique_ptr<MpiOperation> running_;  // Reused by consecutive operations, with its memory.
  bool has_failed_ = false;
};

/// Returns the backend `mpi` of this installation.
[[nodiscard]] Backend describe_backend();

}  // namespace unisono::engine::mpi
