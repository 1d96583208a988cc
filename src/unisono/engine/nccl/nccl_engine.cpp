#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/base/thread.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/nccl/announcement.h"
#include "unisono/engine/nccl/calls.h"
#include "unisono/engine/nccl/communicator.h"
#include "unisono/engine/nccl/gpu_context.h"
#include "unisono/engine/nccl/nccl_api.h"
#include "unisono/engine/nccl/nccl_backend.h"
#include "unisono/engine/nccl/nccl_library.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/wait.h"

namespace unisono::engine::nccl {

/// Executes operations on GPUs by NVIDIA's NCCL; delegates operations on CPUs and barriers to the
/// native engine. A rank's first operation on a GPU selects the GPU for the group.
///
/// Owned by the group. Threads as in Engine. An error on the GPU aborts the communicator.
class NcclEngine final : public Engine {
 public:
  /// The library and the roster must outlive the engine. `local_rank` selects the GPU of
  /// allocate().
  NcclEngine(const NcclLibrary& library,
             const transport::RankTable& roster,
             int local_rank,
             std::shared_ptr<SupervisingEngine> native);

  ~NcclEngine() override { drop(); }

  NcclEngine(const NcclEngine&) = delete;
  NcclEngine& operator=(const NcclEngine&) = delete;
  NcclEngine(NcclEngine&&) = delete;
  NcclEngine& operator=(NcclEngine&&) = delete;

  void execute(const Operation& operation, TimeLimit limit, Caller caller) override;

  /// Returns memory on the group's GPU; before the first operation on a GPU, on the GPU whose
  /// number is the local rank, starting again at cuda:0 if there are more ranks than GPUs.
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype) override;

  void check(const Operation& operation) const override;

  [[nodiscard]] Algorithm last_algorithm() const noexcept override {
    return native_->last_algorithm();
  }

  /// Messages are in CPU memory; the native engine passes them. Refuses a buffer on a GPU, which
  /// the native engine would read as memory of the CPU.
  int pass_message(const MessageCall& call) override {
    check_message(call);
    return native_->pass_message(call);
  }

  void begin_messages(std::span<const MessageCall> calls) override {
    std::for_each(calls.begin(), calls.end(), check_message);
    native_->begin_messages(calls);
  }

  void abort(const Error& reason) noexcept override;
  void leave() noexcept override;

 private:
  void carry_out(const Operation& operation,
                 std::span<const OperationAnnouncement> announcements,
                 TimeLimit& limit,
                 Caller caller);
  void connect(std::span<const OperationAnnouncement> announcements,
               TimeLimit& limit,
               Caller caller);
  template <class IsDone>
  void wait(IsDone is_done, TimeLimit& limit, Caller caller);
  void choose_gpu(int index);
  void check_gpu(int index) const;
  static void check_message(const MessageCall& call);
  [[nodiscard]] OperationAnnouncement announce(const Operation& operation);
  void drop() noexcept;
  void close() noexcept;

  const NcclLibrary& library_;
  const transport::RankTable& roster_;
  int local_rank_;
  std::shared_ptr<SupervisingEngine> native_;
  // Set once by the rank's first operation on a GPU. A call that is checked earlier on another
  // thread is checked again when it is executed.
  std::atomic<int> device_ = kNoDevice;
  std::unique_ptr<GpuContext> context_;
  // Null before the first operation on the GPU, and after drop().
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<Communicator> communicator_;

  static constexpr int kNoDevice = -1;
};

namespace {

// Polls in a tight loop, each of about a microsecond; small operations end during this time.
constexpr int kSpins = 200;
constexpr std::chrono::microseconds kFirstNap{10};
constexpr std::chrono::microseconds kLongestNap{1000};

// Interval of the checks of the other ranks' state.
constexpr std::chrono::milliseconds kBetweenLooks{100};

// Data that a rank sent before it left may be in flight for this time.
constexpr std::chrono::seconds kStillOnItsWay{2};

// Limit for closing a communicator when this rank leaves; the communicator is then aborted.
constexpr std::chrono::milliseconds kCloseTimeout{250};

static_assert(sizeof(ncclUniqueId) == sizeof(OperationAnnouncement::id));

// Returns the index of the operation's GPU; std::nullopt if it has no buffer on a GPU. Buffers that
// only other ranks have are empty.
std::optional<int> find_device(const Operation& operation) {
  std::optional<int> device;
  bool has_cpu = false;
  const auto look = [&](const Buffer& buffer) {
    if (buffer.device.type == DeviceType::kCpu) {
      has_cpu = has_cpu || buffer.data != nullptr;
    } else if (device && *device != buffer.device.index) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("it has buffers on cuda:{} and on cuda:{}; an operation takes those "
                              "of one device",
                              *device,
                              buffer.device.index));
    } else {
      device = buffer.device.index;
    }
  };
  look(operation.in);
  look(operation.out);
  std::for_each(operation.ins.begin(), operation.ins.end(), look);
  std::for_each(operation.outs.begin(), operation.outs.end(), look);
  if (device && has_cpu) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("it has buffers on cuda:{} and on the CPU; an operation takes those of "
                            "one device",
                            *device));
  }
  return device;
}

}  // namespace

NcclEngine::NcclEngine(const NcclLibrary& library,
                       const transport::RankTable& roster,
                       int local_rank,
                       std::shared_ptr<SupervisingEngine> native)
    : library_(library), roster_(roster), local_rank_(local_rank), native_(std::move(native)) {}

void NcclEngine::execute(const Operation& operation, TimeLimit limit, Caller caller) {
  const std::optional<int> device = find_device(operation);
  if (!device && operation.descriptor.kind != transport::OperationKind::kBarrier) {
    native_->execute(operation, limit, caller);
    return;
  }
  (void)limit.deadline();
  if (device) {
    choose_gpu(*device);
  }
  // Barriers are announced too, so that a rank with a different call gets the mismatch error.
  const std::vector<OperationAnnouncement> announcements =
      agree(*native_, roster_, operation, announce(operation), limit, caller);
  if (!device) {
    return;
  }
  try {
    const CurrentGpu current(*context_);
    carry_out(operation, announcements, limit, caller);
  } catch (const Error& error) {
    // Ends the work on the stream, which may still write to the buffers.
    drop();
    throw with_call(native_->prefix(), operation, error);
  }
}

void NcclEngine::choose_gpu(int index) {
  if (!context_) {
    context_ = std::make_unique<GpuContext>(index);
    device_.store(index, std::memory_order_relaxed);
  }
  check_gpu(index);
}

OperationAnnouncement NcclEngine::announce(const Operation& operation) {
  OperationAnnouncement own{.descriptor = operation.descriptor};
  if (!context_) {
    return own;
  }
  own.device = context_->index();
  own.uuid = context_->uuid();
  if (!communicator_ && roster_.rank == 0) {
    ncclUniqueId id{};
    const ncclResult_t result = library_.make_id(&id);
    if (result != ncclSuccess) {
      throw Error(ErrorCode::kSystem,
                  fmt::format("rank {}: ncclGetUniqueId: {}",
                              roster_.self().job_rank,
                              describe(library_, result, nullptr)));
    }
    std::memcpy(own.id.data(), &id, sizeof(id));
  }
  return own;
}

void NcclEngine::connect(std::span<const OperationAnnouncement> announcements,
                         TimeLimit& limit,
                         Caller caller) {
  // Releases of NCCL differ in the result for such ranks.
  if (const std::string same = explain_same_gpu(roster_, announcements); !same.empty()) {
    throw Error(ErrorCode::kInvalidArgument, same);
  }
  ncclUniqueId id{};
  std::memcpy(&id, announcements[0].id.data(), sizeof(id));
  stream_ = std::make_unique<GpuStream>();
  communicator_ = std::make_unique<Communicator>(library_, id, roster_.rank, roster_.world_size());
  wait([this] { return communicator_->is_settled(); }, limit, caller);
}

void NcclEngine::carry_out(const Operation& operation,
                           std::span<const OperationAnnouncement> announcements,
                           TimeLimit& limit,
                           Caller caller) {
  if (!communicator_) {
    connect(announcements, limit, caller);
  }
  stream_->follow_default_stream();
  communicator_->check(enqueue({.library = library_,
                                .communicator = communicator_->get(),
                                .stream = stream_->get(),
                                .rank = roster_.rank,
                                .world_size = roster_.world_size()},
                               operation));
  // NCCL must first pass all work to the stream; an event recorded earlier would complete too
  // early.
  wait([this] { return communicator_->is_settled(); }, limit, caller);
  stream_->mark();
  wait([this] { return stream_->is_done(); }, limit, caller);
  // Work that NCCL has aborted is complete, too, with an undefined result. This call throws its
  // error.
  (void)communicator_->is_settled();
}

template <class IsDone>
void NcclEngine::wait(IsDone is_done, TimeLimit& limit, Caller caller) {
  using transport::Look;
  Deadline next_look = Deadline::after(kBetweenLooks);
  Deadline next_interruption = next_interruption_check();
  std::optional<Deadline> still_on_its_way;
  std::chrono::microseconds nap = kFirstNap;
  const auto look = [&] { return is_done() ? Look::kDone : Look::kNothing; };
  const auto check_and_nap = [&] {
    // Throws if NCCL has detected a failure of another rank or of the network.
    (void)communicator_->is_settled();
    if (next_interruption.has_passed()) {
      next_interruption = next_interruption_check();
      check_interruption();
    }
    if (next_look.has_passed()) {
      next_look = Deadline::after(kBetweenLooks);
      if (const std::optional<Error> departure = native_->check_peers()) {
        still_on_its_way = still_on_its_way.value_or(Deadline::after(kStillOnItsWay));
        if (still_on_its_way->has_passed()) {
          throw Error(*departure);
        }
      }
    }
    if (limit.deadline().has_passed()) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("every rank has called it, but NCCL has not finished it in time on "
                              "cuda:{} of {}; NCCL_DEBUG=INFO makes it log its steps",
                              context_->index(),
                              roster_.self().host));
    }
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, kLongestNap);
    return look();
  };
  transport::wait({.n_spins = caller == Caller::kUser ? kSpins : 0, .n_yields = 1},
                  nullptr,
                  look,
                  check_and_nap);
}

Buffer NcclEngine::allocate(std::int64_t count, DType dtype) {
  int device = device_.load(std::memory_order_relaxed);
  if (device == kNoDevice) {
    device = local_rank_ % std::max(count_gpus(), 1);
  }
  return allocate_on_gpu(device, count, dtype);
}

void NcclEngine::check_message(const MessageCall& call) {
  if (call.buffer.device.type != DeviceType::kCpu) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the buffer is on cuda:{}, and backend nccl passes messages between "
                            "buffers on the CPU; copy the buffer to the CPU first",
                            call.buffer.device.index));
  }
}

void NcclEngine::check(const Operation& operation) const {
  const transport::Descriptor& descriptor = operation.descriptor;
  const std::optional<int> device = find_device(operation);
  if (!device) {
    native_->check(operation);
    return;
  }
  check_gpu(*device);
  if (transport::reduces(descriptor.kind)) {
    (void)find_reduction(descriptor.dtype, descriptor.reduce);
  }
}

void NcclEngine::check_gpu(int index) const {
  const int own = device_.load(std::memory_order_relaxed);
  if (own != kNoDevice && own != index) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("it has buffers on cuda:{}, but this rank's operations in this group "
                            "are on cuda:{}; make another group for another GPU",
                            index,
                            own));
  }
  check_exists(index);
}

void NcclEngine::drop() noexcept {
  if (!context_) {
    return;
  }
  try {
    const CurrentGpu current(*context_);
    communicator_.reset();
    stream_.reset();
  } catch (const std::exception&) {
    return;  // The driver has failed: no work runs any more.
  }
}

void NcclEngine::abort(const Error& reason) noexcept {
  drop();
  native_->abort(reason);
}

void NcclEngine::close() noexcept {
  if (!communicator_) {
    return;
  }
  try {
    const CurrentGpu current(*context_);
    communicator_->close(Deadline::after(kCloseTimeout));
  } catch (const std::exception&) {
    return;  // The driver has failed; the next group reports the failure.
  }
}

void NcclEngine::leave() noexcept {
  close();
  native_->leave();
}

MakeEngine engine_maker(const ProcessFacts& process) {
  (void)cuda_driver();
  return [&library = nccl_library(), local_rank = process.local_rank](
             const transport::RankTable& roster, std::shared_ptr<SupervisingEngine> native) {
    return std::make_shared<NcclEngine>(
        library, roster, local_rank.value_or(roster.self().local_rank), std::move(native));
  };
}

}  // namespace unisono::engine::nccl
