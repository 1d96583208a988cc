#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/nccl/announcement.h"
#include "unisono/engine/nccl/communicator.h"
#include "unisono/engine/nccl/gpu_context.h"
#include "unisono/engine/nccl/nccl_library.h"
#include "unisono/engine/operation.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::engine::nccl {

/// Operations on GPUs by NVIDIA's NCCL, those on CPUs and barriers by the native engine. The first
/// operation of a rank on a GPU chooses it for the group.
class NcclEngine final : public Engine {
 public:
  /// The library and the roster outlive it.
  NcclEngine(const NcclLibrary& library,
             const rendezvous::Roster& roster,
             std::shared_ptr<SupervisingEngine> native);

  ~NcclEngine() override { drop(); }

  NcclEngine(const NcclEngine&) = delete;
  NcclEngine& operator=(const NcclEngine&) = delete;
  NcclEngine(NcclEngine&&) = delete;
  NcclEngine& operator=(NcclEngine&&) = delete;

  void execute(const Operation& operation, TimeLimit limit, Caller caller) override;

  /// On the group's GPU; before the first operation on that whose number is LOCAL_RANK.
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override;

  void check(const Operation& operation) const override;

  [[nodiscard]] Algorithm last_algorithm() const noexcept override {
    return native_->last_algorithm();
  }

  /// Of memory on the CPU.
  int pass_message(const MessageCall& call) override { return native_->pass_message(call); }

  void begin_messages(std::span<const MessageCall> calls) override {
    native_->begin_messages(calls);
  }

  void abort(const Error& reason) noexcept override;
  void leave() noexcept override;

 private:
  void carry_out(const Operation& operation,
                 std::span<const Announcement> announcements,
                 TimeLimit& limit,
                 Caller caller);
  void connect(std::span<const Announcement> announcements, TimeLimit& limit, Caller caller);
  template <class IsDone>
  void wait(IsDone is_done, TimeLimit& limit, Caller caller);
  void choose_gpu(int index);
  void check_gpu(int index) const;
  [[nodiscard]] Announcement announce(const Operation& operation);
  void drop() noexcept;

  const NcclLibrary& library_;
  const rendezvous::Roster& roster_;
  std::shared_ptr<SupervisingEngine> native_;
  // Set once by the rank's first operation on a GPU; who checks a call before that learns of it
  // when the call is carried out.
  std::atomic<int> device_ = kNoDevice;
  std::optional<GpuContext> context_;
  std::optional<GpuStream> stream_;
  std::optional<Communicator> communicator_;

  static constexpr int kNoDevice = -1;
};

}  // namespace unisono::engine::nccl
