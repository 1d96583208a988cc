#include "unisono/engine/native/native_engine.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <array>
#include <exception>
#include <memory_resource>

#include "unisono/base/process.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/operation_reporter.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/remote/connection.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/wait.h"

namespace unisono::engine {
namespace {

// Number of calls that a rank remembers. A rank that no peer has waited for may be this many calls
// ahead when it first waits.
constexpr std::size_t kRememberedCalls = 64;

// Bytes of stack for the bookkeeping of an operation; enough for about ten ranks. With more ranks,
// the cost of heap memory is small against the work.
constexpr std::size_t kOperationBytes = 4096;

// A progress thread does not spin, because its rank may compute meanwhile.
transport::WaitMode wait_mode(Caller caller, bool has_cores) {
  return caller == Caller::kProgress ? transport::kBriefWait : transport::calling_wait(has_cores);
}

// Returns whether a rank may end its part before another rank detects a mismatch: the rank may only
// send, or only receive, or exchange no data with the two ranks that differ.
bool may_end_before_a_mismatch(const transport::Descriptor& descriptor) {
  return !transport::needs_all(descriptor.kind) || transport::is_coalesced(descriptor.kind) ||
         descriptor.count == transport::kUneven;
}

bool has_core_for_each_rank_here(const transport::RankTable& roster) {
  std::vector<pid_t> processes;
  for (const transport::Member& member : roster.members) {
    if (member.node == roster.self().node) {
      processes.push_back(static_cast<pid_t>(member.pid));
    }
  }
  return has_core_for_each(processes);
}

}  // namespace

NativeEngine::NativeEngine(NativeParts parts)
    : parts_(std::move(parts)),
      topology_(parts_.group.topology),
      has_cores_(has_core_for_each_rank_here(parts_.group.ranks)),
      transports_(parts_),
      plans_(topology_),
      choice_(topology_, parts_.group, parts_.config.links),
      peers_(parts_, transports_, has_cores_),
      messages_(parts_, transports_, has_cores_) {}

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
  UNISONO_CHECK(false, "an operation has an invalid kind");
}

void NativeEngine::reduce(OperationContext& context) {
  const collective::Receivers receivers = receivers_of(context.operation);
  const Algorithm algorithm = choice_.choose(context.operation);
  last_algorithm_.store(algorithm, std::memory_order_relaxed);
  if (collective::goes_in_steps(algorithm)) {
    reduce_in_steps(context, plans_.in_steps(algorithm));
  } else if (algorithm != Algorithm::kOneShot) {
    reduce_two_shot(context, plans_.two_shot(receivers), plans_.whole_tree());
  } else if (topology_.n_nodes() == 1) {
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
  carry_out(operation, limit, caller, nullptr);
}

void NativeEngine::supervise(const Operation& operation,
                             TimeLimit limit,
                             Caller caller,
                             SupervisedOperation& supervised) {
  carry_out(operation, limit, caller, &supervised);
}

void NativeEngine::carry_out(const Operation& called,
                             TimeLimit limit,
                             Caller caller,
                             SupervisedOperation* supervised) {
  std::optional<Operation> packed;
  if (transport::is_coalesced(called.descriptor.kind)) {
    packed = coalescing_.pack(called, topology_.world_size());
  }
  const Operation& operation = packed ? *packed : called;
  if (topology_.n_nodes() > 1) {
    remember(operation);
  }
  const OperationReporter reporter(called, parts_, transports_.connections(), calls_);
  transport::WaitMonitor wait_monitor(limit, parts_.config.stall, parts_.group.failure, reporter);
  const tcp::OperationTag tag{.sequence = operation.sequence,
                              .descriptor = operation.descriptor,
                              .blocks = agreed_blocks(called)};
  std::array<std::byte, kOperationBytes> storage;
  std::pmr::monotonic_buffer_resource memory(storage.data(), storage.size());
  OperationContext context{
      .operation = operation,
      .called = called,
      .topology = topology_,
      .group = parts_.group,
      .control_block = transports_.control_block(),
      .exchange = tcp::Exchange(
          transports_.connections(), transports_.traffic_counters(), tag, wait_monitor),
      .mode = wait_mode(caller, has_cores_),
      .has_cores = has_cores_,
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
      carry_out_supervised(*supervised, context, parts_.group.number);
    }
    transports_.control_block().note_finished(operation.sequence);
  } catch (const Error& error) {
    transports_.control_block().give_up();
    if (operation.descriptor.kind == transport::OperationKind::kMonitoredBarrier) {
      parts_.group.events.note_late(operation.sequence, context.find_absent());
    }
    if (topology_.n_nodes() > 1) {
      // Another rank may wait for an operation that this rank has not called, and reads these
      // calls.
      parts_.group.events.publish_calls(calls_);
    }
    // A failure that another thread has set first is the cause.
    throw reporter.complete(parts_.group.failure.is_set() ? parts_.group.failure.error() : error);
  } catch (const std::exception& error) {
    transports_.control_block().give_up();
    throw reporter.complete({ErrorCode::kInternal, error.what()});  // For example out of memory.
  }
  if (packed) {
    Coalescing::unpack(*packed, called);
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
    throw Error(ErrorCode::kInvalidArgument, "the reduction is user-defined, but has no function");
  }
  choice_.check(operation);
}

std::optional<Error> NativeEngine::check_peers() {
  parts_.group.events.check_peers();
  parts_.group.failure.throw_if_set();
  std::vector<int> others;
  for (int rank = 0; rank < topology_.world_size(); ++rank) {
    if (rank != topology_.rank()) {
      others.push_back(rank);
    }
  }
  const std::optional<int> departed = parts_.group.find_departed(others);
  if (!departed) {
    return std::nullopt;
  }
  return Error(ErrorCode::kPeerLost, parts_.group.events.describe_departed(*departed));
}

Buffer NativeEngine::allocate(std::int64_t count, DType dtype) {
  return parts_.memory->allocate(count, dtype);
}

void NativeEngine::abort(const Error& reason) noexcept {
  transports_.connections().abort(reason);
}

std::uint64_t NativeEngine::find_doubtful_operation() {
  if (calls_.empty() || !may_end_before_a_mismatch(calls_.back().descriptor)) {
    return 0;
  }
  try {
    (void)transports_.connections().take_delivered();
    for (tcp::Connection* const connection : transports_.connections().peers()) {
      connection->look_for_abort();
    }
  } catch (const Error& error) {
    parts_.group.failure.set(
        {error.code(), fmt::format("{} {}", parts_.group.prefix, error.what())});
  }
  return calls_.back().sequence;
}

void NativeEngine::leave() noexcept {
  transports_.connections().leave();
}

}  // namespace unisono::engine
