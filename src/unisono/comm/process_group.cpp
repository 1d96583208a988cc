#include "unisono/comm/process_group.h"

#include <fmt/format.h>

#include <utility>

#include "unisono/base/error.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group_state.h"
#include "unisono/comm/job.h"
#include "unisono/comm/mirrors.h"
#include "unisono/comm/new_groups.h"
#include "unisono/comm/operation_queue.h"
#include "unisono/comm/work_state.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native_engines.h"
#include "unisono/transport/descriptor.h"

namespace unisono {

comm::OperationQueue& comm::group_of(ProcessGroup& group) {
  return *group.group_;
}

using comm::lend;
using transport::OperationKind;

ProcessGroup::ProcessGroup(std::unique_ptr<comm::OperationQueue> group)
    : group_(std::move(group)) {}

ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const {
  return group_->state().topology().rank();
}

int ProcessGroup::world_size() const {
  return group_->state().topology().world_size();
}

int ProcessGroup::local_rank() const {
  return group_->state().topology().local_rank();
}

int ProcessGroup::local_world_size() const {
  return group_->state().topology().local_world_size();
}

const transport::RankTable& ProcessGroup::roster() const {
  return group_->state().roster();
}

std::vector<RankTraffic> ProcessGroup::traffic() const {
  return group_->state().traffic();
}

Algorithm ProcessGroup::last_algorithm() const {
  return group_->state().engine().last_algorithm();
}

void ProcessGroup::all_reduce(const Buffer& in,
                              const Buffer& out,
                              const AllReduceOptions& options) {
  group_->run(comm::all_reduce_call(group_->state(), lend(in), lend(out), options));
}

Work ProcessGroup::all_reduce_async(const Buffer& in,
                                    const Buffer& out,
                                    const AllReduceOptions& options) {
  return group_->submit(comm::all_reduce_call(group_->state(), in, out, options));
}

void ProcessGroup::all_reduce(const Buffer& in_out, const AllReduceOptions& options) {
  all_reduce(in_out, in_out, options);
}

Work ProcessGroup::all_reduce_async(const Buffer& in_out, const AllReduceOptions& options) {
  return all_reduce_async(in_out, in_out, options);
}

void ProcessGroup::all_reduce_coalesced(std::span<const Buffer> in_out,
                                        const AllReduceOptions& options) {
  group_->run(comm::all_reduce_coalesced_call(group_->state(), in_out, options));
}

Work ProcessGroup::all_reduce_coalesced_async(std::span<const Buffer> in_out,
                                              const AllReduceOptions& options) {
  return group_->submit(comm::all_reduce_coalesced_call(group_->state(), in_out, options));
}

void ProcessGroup::reduce_scatter_coalesced(std::span<const Buffer> ins,
                                            std::span<const Buffer> outs,
                                            const ReduceScatterOptions& options) {
  group_->run(comm::reduce_scatter_coalesced_call(group_->state(), ins, outs, options));
}

Work ProcessGroup::reduce_scatter_coalesced_async(std::span<const Buffer> ins,
                                                  std::span<const Buffer> outs,
                                                  const ReduceScatterOptions& options) {
  return group_->submit(comm::reduce_scatter_coalesced_call(group_->state(), ins, outs, options));
}

void ProcessGroup::all_gather_coalesced(std::span<const Buffer> ins,
                                        std::span<const Buffer> outs,
                                        const AllGatherOptions& options) {
  group_->run(comm::all_gather_coalesced_call(group_->state(), ins, outs, options));
}

Work ProcessGroup::all_gather_coalesced_async(std::span<const Buffer> ins,
                                              std::span<const Buffer> outs,
                                              const AllGatherOptions& options) {
  return group_->submit(comm::all_gather_coalesced_call(group_->state(), ins, outs, options));
}

void ProcessGroup::reduce(const Buffer& in, const Buffer& out, const ReduceOptions& options) {
  group_->run(comm::reduce_call(group_->state(), lend(in), lend(out), options));
}

Work ProcessGroup::reduce_async(const Buffer& in, const Buffer& out, const ReduceOptions& options) {
  return group_->submit(comm::reduce_call(group_->state(), in, out, options));
}

void ProcessGroup::reduce_scatter(const Blocks& in,
                                  const Buffer& out,
                                  const ReduceScatterOptions& options) {
  group_->run(comm::reduce_scatter_call(group_->state(), lend(in), lend(out), options));
}

Work ProcessGroup::reduce_scatter_async(const Blocks& in,
                                        const Buffer& out,
                                        const ReduceScatterOptions& options) {
  return group_->submit(comm::reduce_scatter_call(group_->state(), in, out, options));
}

void ProcessGroup::broadcast(const Buffer& buffer, const BroadcastOptions& options) {
  group_->run(comm::broadcast_call(group_->state(), lend(buffer), options));
}

Work ProcessGroup::broadcast_async(const Buffer& buffer, const BroadcastOptions& options) {
  return group_->submit(comm::broadcast_call(group_->state(), buffer, options));
}

void ProcessGroup::all_gather(const Buffer& in,
                              const Blocks& out,
                              const AllGatherOptions& options) {
  group_->run(comm::all_gather_call(group_->state(), lend(in), lend(out), options));
}

Work ProcessGroup::all_gather_async(const Buffer& in,
                                    const Blocks& out,
                                    const AllGatherOptions& options) {
  return group_->submit(comm::all_gather_call(group_->state(), in, out, options));
}

void ProcessGroup::gather(const Buffer& in, const Blocks& out, const GatherOptions& options) {
  group_->run(
      comm::rooted_call(group_->state(), OperationKind::kGather, lend(in), lend(out), options));
}

Work ProcessGroup::gather_async(const Buffer& in, const Blocks& out, const GatherOptions& options) {
  return group_->submit(
      comm::rooted_call(group_->state(), OperationKind::kGather, in, out, options));
}

void ProcessGroup::scatter(const Blocks& in, const Buffer& out, const ScatterOptions& options) {
  group_->run(
      comm::rooted_call(group_->state(), OperationKind::kScatter, lend(out), lend(in), options));
}

Work ProcessGroup::scatter_async(const Blocks& in,
                                 const Buffer& out,
                                 const ScatterOptions& options) {
  return group_->submit(
      comm::rooted_call(group_->state(), OperationKind::kScatter, out, in, options));
}

void ProcessGroup::all_to_all(const Blocks& in, const Blocks& out, const AllToAllOptions& options) {
  group_->run(comm::all_to_all_call(group_->state(), lend(in), lend(out), options));
}

Work ProcessGroup::all_to_all_async(const Blocks& in,
                                    const Blocks& out,
                                    const AllToAllOptions& options) {
  return group_->submit(comm::all_to_all_call(group_->state(), in, out, options));
}

void ProcessGroup::barrier(const BarrierOptions& options) {
  group_->run(comm::barrier_call(group_->state(), OperationKind::kBarrier, options));
}

Work ProcessGroup::barrier_async(const BarrierOptions& options) {
  return group_->submit(comm::barrier_call(group_->state(), OperationKind::kBarrier, options));
}

void ProcessGroup::monitored_barrier(const BarrierOptions& options) {
  group_->run(comm::barrier_call(group_->state(), OperationKind::kMonitoredBarrier, options));
}

Work ProcessGroup::monitored_barrier_async(const BarrierOptions& options) {
  return group_->submit(
      comm::barrier_call(group_->state(), OperationKind::kMonitoredBarrier, options));
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(std::span<const int> ranks,
                                                      const GroupOptions& options) {
  const std::vector<int> list(ranks.begin(), ranks.end());
  return new_groups(std::span(&list, 1), options).front();
}

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(std::span<const int> ranks,
                                                      store::Store& store,
                                                      const GroupOptions& options) {
  return std::make_shared<ProcessGroup>(comm::create_group_via_store(
      store, *group_, std::vector<int>(ranks.begin(), ranks.end()), options.timeout));
}

std::vector<std::shared_ptr<ProcessGroup>> ProcessGroup::new_groups(
    std::span<const std::vector<int>> lists, const GroupOptions& options) {
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  for (auto& group : comm::new_groups(*group_, lists, options.timeout)) {
    groups.push_back(group == nullptr ? nullptr : std::make_shared<ProcessGroup>(std::move(group)));
  }
  return groups;
}

std::shared_ptr<ProcessGroup> ProcessGroup::split(int colour,
                                                  int key,
                                                  const GroupOptions& options) {
  auto group = comm::split(*group_, colour, key, options.timeout);
  return group == nullptr ? nullptr : std::make_shared<ProcessGroup>(std::move(group));
}

Buffer ProcessGroup::allocate(std::int64_t count, DType dtype) {
  return group_->state().engine().allocate(count, dtype);
}

bool ProcessGroup::is_symmetric(const Buffer& buffer) const {
  return group_->job()->engines().is_symmetric(buffer);
}

void ProcessGroup::destroy() {
  group_->destroy();
}

void ProcessGroup::abort(const std::string& reason) {
  group_->abort(reason);
}

RefusedCall ProcessGroup::refuse(const std::string& call, const std::string& problem) {
  return group_->state().refuse(call, problem);
}

namespace {

using comm::lend;
using comm::WorkState;
using engine::MessageCall;
using std::chrono::milliseconds;

static_assert(kAnySource == engine::kAnyRank);

const char* name_of(const MessageCall& call) {
  return call.is_send ? "send" : "recv";
}

// Checks the message, and returns its timeout.
milliseconds check(const MessageCall& call,
                   comm::GroupState& state,
                   const std::optional<milliseconds>& timeout) {
  const comm::Arguments arguments(state, name_of(call), call.label);
  state.note_caller();
  arguments.check_buffer(call.buffer, "the buffer");
  if (call.buffer.device.type != DeviceType::kCpu) {
    throw arguments.invalid(
        "the buffer is on a CUDA device; messages are for memory on the CPU: copy it there first");
  }
  const int world_size = arguments.world_size();
  const bool is_any = !call.is_send && call.peer == kAnySource;
  if (!is_any && (call.peer < 0 || call.peer >= world_size)) {
    throw arguments.invalid(fmt::format("rank {} is outside a world of {}", call.peer, world_size));
  }
  if (call.tag < 0) {
    throw arguments.invalid(fmt::format("the tag is {}; tags begin at 0", call.tag));
  }
  return arguments.timeout(timeout);
}

// Returns the result of `pass`. Refuses the call if the backend does not pass messages, or not this
// message.
template <class Pass>
auto or_refuse(comm::GroupState& state,
               const char* name,
               const std::string& label,
               const Pass& pass) -> decltype(pass()) {
  try {
    const engine::Backend& backend = state.job().backend();
    engine::check_passes_messages(backend.capabilities, backend.name);
    return pass();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument || state.failure().is_set()) {
      throw;
    }
    throw comm::Arguments(state, name, label).invalid(error.what());
  }
}

// Waits until the host memory of a message on a device has the elements to send.
void fetch(const comm::Mirrors& mirrors, const MessageCall& call, comm::GroupState& state) {
  if (mirrors.is_empty()) [[likely]] {
    return;
  }
  try {
    mirrors.fetch(Deadline::after(call.timeout));
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{} {}{}{}: {}",
                            state.prefix(),
                            name_of(call),
                            call.label.empty() ? "" : " of ",
                            call.label,
                            error.what()));
  }
}

// Returns the sending rank of a receive.
int run(comm::GroupState& state, MessageCall call, const std::optional<milliseconds>& timeout) {
  call.timeout = check(call, state, timeout);
  const comm::Mirrors mirrors(call.buffer);
  fetch(mirrors, call, state);
  const int source = or_refuse(
      state, name_of(call), call.label, [&] { return state.engine().pass_message(call); });
  if (!mirrors.is_empty()) [[unlikely]] {
    mirrors.write_back();
    mirrors.follow();
  }
  return source;
}

// The calls must have been checked. `name` and `label` are for error messages.
std::vector<Work> begin(comm::OperationQueue& group,
                        const char* name,
                        const std::string& label,
                        std::span<MessageCall> calls) {
  std::vector<Work> works;
  works.reserve(calls.size());
  for (MessageCall& call : calls) {
    comm::Mirrors mirrors(call.buffer);
    fetch(mirrors, call, group.state());
    const auto state = std::make_shared<WorkState>(
        transport::WaitId(), group.job()->blocked_threads(), std::move(mirrors));
    call.handle = state;
    works.emplace_back(state);
  }
  comm::GroupState& state = group.state();
  or_refuse(state, name, label, [&] { state.engine().begin_messages(calls); });
  return works;
}

Work submit(comm::OperationQueue& group,
            MessageCall call,
            const std::optional<milliseconds>& timeout) {
  call.timeout = check(call, group.state(), timeout);
  return begin(group, name_of(call), call.label, std::span(&call, 1)).front();
}

// `Options` are the options of a message, or a message of a batch.
template <class Options>
MessageCall message_call(bool is_send, const Buffer& buffer, int peer, const Options& options) {
  return {.is_send = is_send,
          .peer = peer,
          .tag = options.tag,
          .buffer = buffer,
          .label = options.label};
}

}  // namespace

void ProcessGroup::send(const Buffer& buffer, int to, const SendOptions& options) {
  (void)run(group_->state(), message_call(true, lend(buffer), to, options), options.timeout);
}

Work ProcessGroup::send_async(const Buffer& buffer, int to, const SendOptions& options) {
  return submit(*group_, message_call(true, buffer, to, options), options.timeout);
}

int ProcessGroup::recv(const Buffer& buffer, int from, const RecvOptions& options) {
  return run(group_->state(), message_call(false, lend(buffer), from, options), options.timeout);
}

Work ProcessGroup::recv_async(const Buffer& buffer, int from, const RecvOptions& options) {
  return submit(*group_, message_call(false, buffer, from, options), options.timeout);
}

std::vector<Work> ProcessGroup::batch(std::span<const PointToPointOperation> operations) {
  std::vector<MessageCall> calls;
  calls.reserve(operations.size());
  for (const PointToPointOperation& operation : operations) {
    const bool is_send = operation.kind == PointToPointOperation::Kind::kSend;
    MessageCall& call =
        calls.emplace_back(message_call(is_send, operation.buffer, operation.peer, operation));
    call.timeout = check(call, group_->state(), operation.timeout);
  }
  return begin(*group_, "batch", "", calls);
}

}  // namespace unisono
