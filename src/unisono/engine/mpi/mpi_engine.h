#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/capabilities.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/mpi/library.h"
#include "unisono/engine/mpi/mpi_operation.h"
#include "unisono/engine/operation.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::engine::mpi {

/// The MPI's own collective operations, each begun once all ranks of the node have called it, and
/// supervised by the native engine. Messages and monitored_barrier() are the native engine's.
class MpiEngine final : public Engine {
 public:
  /// Throws Error(kMismatch) where this rank has another number in the MPI's world.
  MpiEngine(std::shared_ptr<Library> library,
            const rendezvous::Roster& roster,
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
  std::unique_ptr<MpiOperation> running_;  // Of one operation after the other: it keeps its memory.
  bool has_failed_ = false;
};

/// The backend `mpi`, as it is in this installation.
[[nodiscard]] Backend describe_backend();

}  // namespace unisono::engine::mpi
