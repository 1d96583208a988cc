#include "unisono/engine/native/native_engine.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/cores.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/collective/all_reduce_plan.h"
#include "unisono/collective/choose.h"
#include "unisono/engine/native/operation_run.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/patience.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/tcp/connection.h"

namespace unisono::engine {
namespace {

// Looks before a wait goes to the next stage. Spins take some 40 ns each, yields some 500 ns.
constexpr int kSpins = 2000;
constexpr int kYields = 200;

// Time for the peers to read why this rank gave up.
constexpr std::chrono::milliseconds kAbortLinger{250};

// A rank whose peers have no core of their own must give way at once.
shm::WaitMode user_wait_mode(int local_world_size) {
  const bool has_cores = local_world_size <= available_cores();
  return {.n_spins = has_cores ? kSpins : 1, .n_yields = kYields};
}

// Says who waits for whom in which operation.
class OperationReporter final : public transport::WaitReporter {
 public:
  OperationReporter(const Operation& operation, const RankStatus& ranks)
      : operation_(operation), ranks_(ranks) {}

  [[nodiscard]] Error timed_out(std::span<const int> late_ranks) const override {
    return {ErrorCode::kTimeout,
            fmt::format("timed out waiting for {}", ranks_.describe_late(late_ranks))};
  }

  [[nodiscard]] std::optional<Error> departed(std::span<const int> late_ranks) const override {
    const std::optional<int> rank = ranks_.find_departed(late_ranks);
    if (!rank) {
      return std::nullopt;
    }
    return Error(ErrorCode::kPeerLost,
                 fmt::format("{} left the group, but this operation still needs it",
                             ranks_.describe(*rank)));
  }

  void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const override {
    ranks_.logger().warning(fmt::format("{} {} waits since {:.0f} s for {}",
                                        ranks_.prefix(),
                                        describe(operation_),
                                        static_cast<double>(waited.count()) / 1000,
                                        ranks_.describe_late(late_ranks)));
  }

  [[nodiscard]] static std::string describe(const Operation& operation) {
    const std::string text = transport::describe(operation.descriptor, operation.sequence);
    return operation.label.empty() ? text : fmt::format("{} of {}", text, operation.label);
  }

 private:
  const Operation& operation_;
  const RankStatus& ranks_;
};

}  // namespace

NativeEngine::NativeEngine(NativeParts parts)
    : parts_(std::move(parts)),
      one_shot_(collective::one_shot_plan(parts_.topology)),
      two_shot_(collective::two_shot_plan(parts_.topology)),
      user_mode_(user_wait_mode(parts_.topology.local_world_size())),
      progress_mode_{.n_spins = 1, .n_yields = 20} {}

void NativeEngine::execute(const Operation& operation, Deadline deadline, Caller caller) {
  const OperationReporter reporter(operation, parts_.ranks);
  transport::Patience patience(deadline, parts_.stall, parts_.failure, reporter);
  OperationRun run(operation,
                   parts_.topology,
                   parts_.board,
                   parts_.mesh,
                   caller == Caller::kUser ? user_mode_ : progress_mode_,
                   patience,
                   scratch_);
  try {
    switch (operation.descriptor.kind) {
      case transport::OperationKind::kBarrier:
        run.barrier();
        break;
      case transport::OperationKind::kBroadcast:
        run.broadcast();
        break;
      case transport::OperationKind::kAllReduce:
        if (is_one_shot(operation)) {
          run.all_reduce_one_shot(one_shot_, two_shot_);
        } else {
          run.all_reduce_two_shot(two_shot_);
        }
        break;
      case transport::OperationKind::kNone:
        UNISONO_CHECK(false, "an operation has no kind");
    }
  } catch (const Error& error) {
    // A failure that another thread knew first says what it is about already.
    if (parts_.failure.is_set()) {
      throw parts_.failure.error();
    }
    throw Error(error.code(),
                fmt::format("{} {}: {}",
                            parts_.ranks.prefix(),
                            OperationReporter::describe(operation),
                            error.what()));
  }
}

bool NativeEngine::is_one_shot(const Operation& operation) const {
  switch (operation.descriptor.algorithm) {
    case Algorithm::kOneShot:
      return true;
    case Algorithm::kTwoShot:
      return false;
    case Algorithm::kAuto:
      break;
  }
  return collective::is_one_shot_cheaper(operation.in.n_bytes(), parts_.topology, shm::kSlotBytes);
}

void NativeEngine::check(const Operation& operation) const {
  const transport::Descriptor& descriptor = operation.descriptor;
  if (descriptor.kind != transport::OperationKind::kAllReduce) {
    return;
  }
  kernels::check_reduction(descriptor.dtype, descriptor.reduce);
  const bool is_forced = descriptor.algorithm == Algorithm::kOneShot;
  if (is_forced && operation.in.n_bytes() > shm::kSlotBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("all_reduce: algorithm one_shot takes at most {} bytes, not {}",
                            shm::kSlotBytes,
                            operation.in.n_bytes()));
  }
}

Buffer NativeEngine::allocate(std::int64_t count, DType dtype) {
  return parts_.memory->allocate(count, dtype);
}

void NativeEngine::abort(const Error& reason) noexcept {
  if (std::exchange(has_aborted_, true)) {
    return;
  }
  adopt_delivered();
  for (tcp::Connection* const connection : parts_.mesh.open_connections()) {
    connection->abort(reason);
  }
}

void NativeEngine::leave() noexcept {
  adopt_delivered();
  const std::vector<tcp::Connection*> connections = parts_.mesh.open_connections();
  for (tcp::Connection* const connection : connections) {
    if (!has_aborted_) {
      connection->say_goodbye();
    }
  }
  const Deadline deadline =
      Deadline::after(has_aborted_ ? kAbortLinger : std::chrono::milliseconds::zero());
  for (tcp::Connection* const connection : connections) {
    connection->linger(deadline);
  }
}

// Ranks that this one never talked to hear of its end, too.
void NativeEngine::adopt_delivered() noexcept {
  try {
    parts_.mesh.adopt_delivered();
  } catch (const std::exception&) {
    // Out of memory, say: the ends of the connections have to say it.
    return;
  }
}

}  // namespace unisono::engine
