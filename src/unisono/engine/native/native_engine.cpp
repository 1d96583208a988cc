#include "unisono/engine/native/native_engine.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/step_plan.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/collectives/coalescing.h"
#include "unisono/engine/native/collectives/data_movement.h"
#include "unisono/engine/native/collectives/reductions.h"
#include "unisono/engine/native/collectives/step_reduction.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/engine/native/supervision.h"
#include "unisono/engine/operation.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/mismatch.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::engine {
namespace {

// Looks before a wait goes to the next stage. Spins take some 40 ns each, yields some 500 ns.
constexpr int kSpins = 2000;
constexpr int kYields = 200;

// A rank that was not waited for may have gone on by so many calls when it first waits.
constexpr std::size_t kRememberedCalls = 64;

// Of some ten ranks. Beyond that the heap's cost is lost in the work.
constexpr std::size_t kOperationBytes = 4096;

// Time for the peers to read why this rank gave up.
constexpr std::chrono::milliseconds kAbortLinger{250};

// A rank whose peers have no core of their own must give way at once.
shm::WaitMode user_wait_mode(bool has_cores) {
  return {.n_spins = has_cores ? kSpins : 1, .n_yields = kYields};
}

// Says who waits for whom in which operation.
class OperationReporter final : public transport::WaitObserver {
 public:
  OperationReporter(const Operation& operation,
                    const collective::Topology& topology,
                    const RankStatus& ranks,
                    const tcp::Mesh& mesh,
                    CallHistory& call_history,
                    const std::function<void()>& listen,
                    std::span<const CallRecord> calls)
      : operation_(operation),
        topology_(topology),
        ranks_(ranks),
        mesh_(mesh),
        call_history_(call_history),
        listen_(listen),
        calls_(calls) {}

  [[nodiscard]] Error timed_out(std::span<const int> late_ranks) const override {
    return {ErrorCode::kTimeout,
            fmt::format("timed out waiting for {}", ranks_.describe_overdue(late_ranks))};
  }

  [[nodiscard]] std::optional<Error> departed(std::span<const int> late_ranks) const override {
    const std::optional<int> rank = ranks_.find_departed(late_ranks);
    if (!rank) {
      return std::nullopt;
    }
    return Error(ErrorCode::kPeerLost, ranks_.describe_departed(*rank));
  }

  void listen() const override { listen_(); }

  // On this node the headers say what each called.
  void look_into(std::span<const int> late_ranks) const override {
    ranks_.note_late(operation_.sequence, late_ranks);
    if (topology_.n_nodes() == 1) {
      return;
    }
    for (tcp::Connection* const connection : mesh_.open_connections()) {
      connection->look_for_abort();
    }
    call_history_.tell(calls_);
    for (const int rank : late_ranks) {
      if (topology_.node_of(rank) == topology_.node()) {
        continue;
      }
      for (const CallRecord& call : call_history_.ask(rank)) {
        if (call.sequence == operation_.sequence && call.descriptor != operation_.descriptor) {
          // It may wait for another rank, which knows nothing of it.
          call_history_.warn(rank, complete(mismatch(rank, call)));
          throw mismatch(rank, call);
        }
      }
    }
  }

  void show(Deadline::Clock::time_point since, std::span<const int> late_ranks) const override {
    ranks_.show_wait(operation_.sequence,
                     {.since = since, .late_ranks = late_ranks, .operation = describe_operation()});
  }

  void hide() const noexcept override { ranks_.hide_wait(operation_.sequence); }

  void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const override {
    ranks_.report_stall(describe_operation(), waited, ranks_.describe_late(late_ranks), late_ranks);
    ranks_.look_for_cycle(operation_.sequence);
  }

  // With the rank, where it does not say that yet, and the operation that it ends.
  [[nodiscard]] Error complete(const Error& error) const {
    return transport::with_call(ranks_.prefix(), describe_operation(), error);
  }

 private:
  [[nodiscard]] Error mismatch(int rank, const CallRecord& call) const {
    return transport::mismatch(
        {.who = ranks_.describe(rank), .sequence = call.sequence, .descriptor = call.descriptor},
        {.who = "this rank",
         .sequence = operation_.sequence,
         .descriptor = operation_.descriptor,
         .counts = transport::counts_of(agreed_blocks(operation_))},
        ranks_.job_ranks());
  }

  [[nodiscard]] std::string describe_operation() const {
    const std::string text =
        transport::describe(operation_.descriptor, operation_.sequence, {}, ranks_.job_ranks());
    return operation_.label.empty() ? text : fmt::format("{} of {}", text, operation_.label);
  }

  const Operation& operation_;
  const collective::Topology& topology_;
  const RankStatus& ranks_;
  const tcp::Mesh& mesh_;
  CallHistory& call_history_;
  const std::function<void()>& listen_;
  std::span<const CallRecord> calls_;
};

}  // namespace

NativeEngine::NativeEngine(NativeParts parts)
    : parts_(std::move(parts)),
      plans_(parts_.topology),
      choice_(parts_.topology, parts_.ranks, parts_.links),
      peers_(
          parts_.processes,
          {.is_forced = parts_.single_copy == SingleCopy::kAlways, .has_cores = parts_.has_cores},
          parts_.control_block,
          parts_.ranks),
      user_mode_(user_wait_mode(parts_.has_cores)),
      progress_mode_{.n_spins = 1, .n_yields = 20} {}

void NativeEngine::run(OperationContext& context) {
  switch (context.operation.descriptor.kind) {
    case transport::OperationKind::kBarrier:
      context.enter();
      context.meet_other_nodes();
      return;
    case transport::OperationKind::kMonitoredBarrier:
      return context.meet_every_rank();
    case transport::OperationKind::kBroadcast:
      return broadcast(context);
    case transport::OperationKind::kAllReduce:
    case transport::OperationKind::kReduce:
    case transport::OperationKind::kReduceScatter:
    case transport::OperationKind::kAllReduceCoalesced:
    case transport::OperationKind::kReduceScatterCoalesced:
      return reduce(context);
    case transport::OperationKind::kAllGather:
    case transport::OperationKind::kAllGatherCoalesced:
      return all_gather(context);
    case transport::OperationKind::kGather:
    case transport::OperationKind::kScatter:
    case transport::OperationKind::kAllToAll:
      return move_blocks(context);
    case transport::OperationKind::kNone:
      break;
  }
  UNISONO_CHECK(false, "an operation has no kind");
}

void NativeEngine::reduce(OperationContext& context) {
  const collective::Receivers receivers = receivers_of(context.operation);
  const Algorithm algorithm = choice_.choose(context.operation);
  last_algorithm_.store(algorithm, std::memory_order_relaxed);
  if (collective::goes_in_steps(algorithm)) {
    reduce_in_steps(context, plans_.in_steps(algorithm));
  } else if (algorithm != Algorithm::kOneShot) {
    reduce_two_shot(
        context, plans_.two_shot(receivers), plans_.whole_tree(), compression_of(algorithm));
  } else if (parts_.topology.n_nodes() == 1) {
    reduce_in_slots(context, plans_.two_shot(receivers), plans_.whole_tree());
  } else {
    reduce_one_shot(context, plans_.one_shot(receivers));
  }
  choice_.learn(context);
}

void NativeEngine::remember(const Operation& operation) {
  if (calls_.size() == kRememberedCalls) {
    calls_.erase(calls_.begin());
  }
  calls_.push_back({.sequence = operation.sequence, .descriptor = operation.descriptor});
}

void NativeEngine::execute(const Operation& operation, TimeLimit limit, Caller caller) {
  pack_and_carry_out(operation, limit, caller, nullptr);
}

void NativeEngine::supervise(const Operation& operation,
                             TimeLimit limit,
                             Caller caller,
                             SupervisedOperation& supervised) {
  pack_and_carry_out(operation, limit, caller, &supervised);
}

void NativeEngine::pack_and_carry_out(const Operation& operation,
                                      TimeLimit limit,
                                      Caller caller,
                                      SupervisedOperation* supervised) {
  if (!Coalescing::is_coalesced(operation)) {
    carry_out(operation, operation, limit, caller, supervised);
    return;
  }
  const Operation packed = coalescing_.pack(operation, parts_.topology.world_size());
  carry_out(packed, operation, limit, caller, supervised);
  Coalescing::unpack(packed, operation);
}

void NativeEngine::carry_out(const Operation& operation,
                             const Operation& called,
                             TimeLimit limit,
                             Caller caller,
                             SupervisedOperation* supervised) {
  if (parts_.topology.n_nodes() > 1) {
    remember(operation);
  }
  const OperationReporter reporter(called,
                                   parts_.topology,
                                   parts_.ranks,
                                   parts_.mesh,
                                   parts_.call_history,
                                   parts_.listen,
                                   calls_);
  transport::WaitMonitor wait_monitor(limit, parts_.stall, parts_.failure, reporter);
  const tcp::OperationTag tag{.sequence = operation.sequence,
                              .descriptor = operation.descriptor,
                              .blocks = agreed_blocks(called)};
  std::array<std::byte, kOperationBytes> storage;
  std::pmr::monotonic_buffer_resource memory(storage.data(), storage.size());
  OperationContext context{.operation = operation,
                           .called = called,
                           .topology = parts_.topology,
                           .ranks = parts_.ranks,
                           .control_block = parts_.control_block,
                           .exchange = tcp::Exchange(parts_.mesh, tag, wait_monitor),
                           .mode = caller == Caller::kUser ? user_mode_ : progress_mode_,
                           .has_cores = parts_.has_cores,
                           .wait_monitor = wait_monitor,
                           .peers = peers_,
                           .scratch = scratch_,
                           .inputs = inputs_,
                           .outputs = outputs_,
                           .memory = memory};
  try {
    if (supervised == nullptr) {
      run(context);
    } else {
      carry_out_supervised(*supervised, context, parts_.group);
    }
    parts_.control_block.note_finished(operation.sequence);
  } catch (const Error& error) {
    parts_.control_block.give_up();
    if (parts_.topology.n_nodes() > 1) {
      // Somebody may wait for what this rank has not called, and come to ask.
      parts_.call_history.tell(calls_);
    }
    // What another thread knew first is the cause.
    throw reporter.complete(parts_.failure.is_set() ? parts_.failure.error() : error);
  } catch (const std::exception& error) {
    parts_.control_block.give_up();
    throw reporter.complete({ErrorCode::kInternal, error.what()});  // Out of memory, say.
  }
}

void NativeEngine::check(const Operation& operation) const {
  const transport::Descriptor& descriptor = operation.descriptor;
  if (!transport::reduces(descriptor.kind)) {
    return;
  }
  kernels::check_reduction(descriptor.dtype, descriptor.reduce);
  if (descriptor.reduce == ReduceKind::kUser &&
      (operation.user == nullptr || operation.user->combine == nullptr)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the reduction is the user's own, but there is no function");
  }
  choice_.check(operation);
}

Buffer NativeEngine::allocate(std::int64_t count, DType dtype) {
  return parts_.memory->allocate(count, dtype);
}

void NativeEngine::abort(const Error& reason) noexcept {
  if (std::exchange(has_aborted_, true)) {
    return;
  }
  adopt_delivered();
  try {
    for (tcp::Connection* const connection : parts_.mesh.open_connections()) {
      connection->abort(reason);
    }
  } catch (const std::exception&) {
    return;  // Out of memory: the ends of the connections have to say it.
  }
}

void NativeEngine::leave() noexcept {
  adopt_delivered();
  const std::vector<tcp::Connection*> connections = parts_.mesh.open_connections();
  if (!has_aborted_) {
    report_unheard(connections);
  }
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

// A rank that only sent may not have heard that others failed over what it called, too.
void NativeEngine::report_unheard(std::span<tcp::Connection* const> connections) const noexcept {
  for (tcp::Connection* const connection : connections) {
    try {
      connection->look_for_abort();
    } catch (const Error& error) {
      parts_.ranks.report_unheard(error);
      return;
    } catch (const std::exception&) {
      return;  // Out of memory, say.
    }
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
