#include "unisono/engine/nccl/nccl_engine.h"

#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <array>
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

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruption.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/nccl/announcement.h"
#include "unisono/engine/nccl/calls.h"
#include "unisono/engine/nccl/communicator.h"
#include "unisono/engine/nccl/cuda_driver.h"
#include "unisono/engine/nccl/gpu_context.h"
#include "unisono/engine/nccl/nccl_backend.h"
#include "unisono/engine/nccl/nccl_library.h"
#include "unisono/engine/nccl/reductions.h"
#include "unisono/engine/operation.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/rendezvous/local_device.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/waiter.h"

namespace unisono::engine::nccl {
namespace {

// Looks in a tight loop, of about a microsecond each: what small operations take.
constexpr int kSpins = 200;
constexpr std::chrono::microseconds kFirstNap{10};
constexpr std::chrono::microseconds kLongestNap{1000};

// Between two looks at what has become of the other ranks.
constexpr std::chrono::milliseconds kBetweenLooks{100};

// What a rank has sent before it left may still be on its way for so long.
constexpr std::chrono::seconds kStillOnItsWay{2};

constexpr std::chrono::milliseconds kCloseTimeout{250};

static_assert(sizeof(ncclUniqueId) == sizeof(Announcement::id));

// The GPU's number; nothing where it has no buffer there. Those that only other ranks have are
// empty.
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

int local_rank_of(const rendezvous::Roster& roster) {
  const auto self = roster.members.begin() + roster.rank;
  return static_cast<int>(
      std::count_if(roster.members.begin(), self, [&](const rendezvous::Member& member) {
        return member.node == self->node;
      }));
}

}  // namespace

NcclEngine::NcclEngine(const NcclLibrary& library,
                       const rendezvous::Roster& roster,
                       std::shared_ptr<SupervisingEngine> native)
    : library_(library), roster_(roster), native_(std::move(native)) {}

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
  // Also of a barrier, so that ranks which call something else instead learn what.
  const std::vector<Announcement> announcements =
      agree(*native_, roster_, operation, announce(operation), limit, caller);
  if (!device) {
    return;
  }
  try {
    const CurrentGpu current(*context_);
    carry_out(operation, announcements, limit, caller);
  } catch (const Error& error) {
    // What still runs writes to the buffers.
    drop();
    throw with_call(roster_, operation, error);
  }
}

void NcclEngine::choose_gpu(int index) {
  if (!context_) {
    context_.emplace(index);
    device_.store(index, std::memory_order_relaxed);
  }
  check_gpu(index);
}

Announcement NcclEngine::announce(const Operation& operation) {
  Announcement own{.descriptor = operation.descriptor};
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
                              roster_.self().rank,
                              describe(library_, result, nullptr)));
    }
    std::memcpy(own.id.data(), &id, sizeof(id));
  }
  return own;
}

void NcclEngine::connect(std::span<const Announcement> announcements,
                         TimeLimit& limit,
                         Caller caller) {
  ncclUniqueId id{};
  std::memcpy(&id, announcements[0].id.data(), sizeof(id));
  stream_.emplace();
  try {
    communicator_.emplace(library_, id, roster_.rank, roster_.world_size());
    wait([this] { return communicator_->is_settled(); }, limit, caller);
  } catch (const Error& error) {
    const std::string same = explain_same_gpu(roster_, announcements);
    if (error.code() != ErrorCode::kInvalidArgument || same.empty()) {
      throw;
    }
    throw Error(error.code(), fmt::format("{} ({})", same, error.what()));
  }
}

void NcclEngine::carry_out(const Operation& operation,
                           std::span<const Announcement> announcements,
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
  // Until NCCL has given all to the stream, an event there would come too early.
  wait([this] { return communicator_->is_settled(); }, limit, caller);
  stream_->mark();
  wait([this] { return stream_->is_done(); }, limit, caller);
  // What NCCL has given up is done, too, and its result is anything.
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
    // NCCL says there what it has noticed of the other ranks and the network.
    (void)communicator_->is_settled();
    if (next_interruption.has_passed()) {
      next_interruption = next_interruption_check();
      check_interruption();
    }
    if (next_look.has_passed()) {
      next_look = Deadline::after(kBetweenLooks);
      if (const std::optional<Error> departure = native_->look_at_ranks()) {
        still_on_its_way = still_on_its_way.value_or(Deadline::after(kStillOnItsWay));
        if (still_on_its_way->has_passed()) {
          throw Error(*departure);
        }
      }
    }
    if (limit.deadline().has_passed()) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("every rank has called it, but NCCL has not finished it in time on "
                              "cuda:{} of {}; NCCL_DEBUG=INFO has it say what it does",
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
  const int device = device_.load(std::memory_order_relaxed);
  return allocate_on_gpu(device == kNoDevice ? local_rank_of(roster_) : device, count, dtype);
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
  int number = 0;
  if (cuda_driver().device(&number, index) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("it has buffers on cuda:{}, which there is not; `unisono devices` "
                            "lists the GPUs",
                            index));
  }
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
    return;  // The driver has failed: nothing runs any more.
  }
}

void NcclEngine::abort(const Error& reason) noexcept {
  drop();
  native_->abort(reason);
}

void NcclEngine::leave() noexcept {
  if (communicator_) {
    try {
      const CurrentGpu current(*context_);
      communicator_->close(Deadline::after(kCloseTimeout));
    } catch (const std::exception&) {
      // The driver has failed, which the next group will say.
    }
  }
  native_->leave();
}

MakeEngine engine_maker() {
  try {
    const NcclLibrary& library = nccl_library();
    return [&library](const rendezvous::Roster& roster, std::shared_ptr<SupervisingEngine> native) {
      return std::make_shared<NcclEngine>(library, roster, std::move(native));
    };
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("NVIDIA's NCCL can't be loaded: {}; install it (pip install "
                            "nvidia-nccl-cu13, apt-get install libnccl2) and name its folder in "
                            "LD_LIBRARY_PATH",
                            error.what()));
  }
}

}  // namespace unisono::engine::nccl
