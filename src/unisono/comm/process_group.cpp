#include "unisono/comm/process_group.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/comm/arguments.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/options.h"
#include "unisono/comm/work.h"
#include "unisono/engine/operation.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/descriptor.h"

namespace unisono {
namespace {

using comm::check_buffer;
using comm::invalid;
using transport::OperationKind;

bool overlaps_in_part(const Buffer& a, const Buffer& b) {
  const auto* const a_begin = static_cast<const std::byte*>(a.data);
  const auto* const b_begin = static_cast<const std::byte*>(b.data);
  const std::less<> before;
  return a_begin != b_begin && before(a_begin, b_begin + b.n_bytes()) &&
         before(b_begin, a_begin + a.n_bytes());
}

void check_pair(const Buffer& in, const Buffer& out, const std::string& label) {
  check_buffer(in, "all_reduce", label);
  check_buffer(out, "all_reduce", label);
  if (in.count != out.count || in.dtype != out.dtype) {
    throw invalid("all_reduce",
                  label,
                  fmt::format("in is {}[{}], out is {}[{}]",
                              to_string(in.dtype),
                              in.count,
                              to_string(out.dtype),
                              out.count));
  }
  if (overlaps_in_part(in, out)) {
    throw invalid("all_reduce", label, "in and out overlap, but are not the same memory");
  }
}

Deadline deadline_of(const comm::Job& job,
                     std::optional<std::chrono::milliseconds> timeout,
                     std::string_view operation,
                     const std::string& label) {
  if (timeout && *timeout <= std::chrono::milliseconds::zero()) {
    throw invalid(operation, label, fmt::format("the timeout is {} ms", timeout->count()));
  }
  return Deadline::after(timeout.value_or(job.timeout()));
}

// What a call comes to once its arguments are checked.
struct Call {
  engine::Operation operation;
  Deadline deadline;
};

Call all_reduce_call(comm::Job& job,
                     const Buffer& in,
                     const Buffer& out,
                     const AllReduceOptions& options) {
  check_pair(in, out, options.label);
  Call call{.operation = {.descriptor = {.kind = OperationKind::kAllReduce,
                                         .dtype = in.dtype,
                                         .reduce = options.op.kind,
                                         .algorithm = options.algorithm,
                                         .root = 0,
                                         .count = in.count},
                          .in = in,
                          .out = out,
                          .label = options.label},
            .deadline = deadline_of(job, options.timeout, "all_reduce", options.label)};
  job.engine().check(call.operation);
  return call;
}

Call broadcast_call(comm::Job& job, const Buffer& buffer, const BroadcastOptions& options) {
  check_buffer(buffer, "broadcast", options.label);
  const int world_size = job.roster().world_size();
  if (options.root < 0 || options.root >= world_size) {
    throw invalid("broadcast",
                  options.label,
                  fmt::format("root {} is outside a world of {}", options.root, world_size));
  }
  return {.operation = {.descriptor = {.kind = OperationKind::kBroadcast,
                                       .dtype = buffer.dtype,
                                       .root = options.root,
                                       .count = buffer.count},
                        .in = buffer,
                        .out = buffer,
                        .label = options.label},
          .deadline = deadline_of(job, options.timeout, "broadcast", options.label)};
}

Call barrier_call(const comm::Job& job, const BarrierOptions& options) {
  return {.operation = {.descriptor = {.kind = OperationKind::kBarrier}, .label = options.label},
          .deadline = deadline_of(job, options.timeout, "barrier", options.label)};
}

}  // namespace

ProcessGroup::ProcessGroup(std::unique_ptr<comm::Group> group) : group_(std::move(group)) {}

ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const {
  return group_->job().topology().rank();
}

int ProcessGroup::world_size() const {
  return group_->job().topology().world_size();
}

int ProcessGroup::local_rank() const {
  return group_->job().topology().local_rank();
}

int ProcessGroup::local_world_size() const {
  return group_->job().topology().local_world_size();
}

const rendezvous::Roster& ProcessGroup::roster() const {
  return group_->job().roster();
}

void ProcessGroup::all_reduce(const Buffer& in,
                              const Buffer& out,
                              const AllReduceOptions& options) {
  Call call = all_reduce_call(group_->job(), in, out, options);
  group_->run(std::move(call.operation), call.deadline);
}

void ProcessGroup::all_reduce(const Buffer& in_out, const AllReduceOptions& options) {
  all_reduce(in_out, in_out, options);
}

Work ProcessGroup::all_reduce_async(const Buffer& in,
                                    const Buffer& out,
                                    const AllReduceOptions& options) {
  Call call = all_reduce_call(group_->job(), in, out, options);
  return group_->submit(std::move(call.operation), call.deadline);
}

Work ProcessGroup::all_reduce_async(const Buffer& in_out, const AllReduceOptions& options) {
  return all_reduce_async(in_out, in_out, options);
}

void ProcessGroup::broadcast(const Buffer& buffer, const BroadcastOptions& options) {
  Call call = broadcast_call(group_->job(), buffer, options);
  group_->run(std::move(call.operation), call.deadline);
}

Work ProcessGroup::broadcast_async(const Buffer& buffer, const BroadcastOptions& options) {
  Call call = broadcast_call(group_->job(), buffer, options);
  return group_->submit(std::move(call.operation), call.deadline);
}

void ProcessGroup::barrier(const BarrierOptions& options) {
  Call call = barrier_call(group_->job(), options);
  group_->run(std::move(call.operation), call.deadline);
}

Work ProcessGroup::barrier_async(const BarrierOptions& options) {
  Call call = barrier_call(group_->job(), options);
  return group_->submit(std::move(call.operation), call.deadline);
}

Buffer ProcessGroup::allocate(std::int64_t count, DType dtype) {
  return group_->job().engine().allocate(count, dtype);
}

void ProcessGroup::destroy() {
  group_->destroy();
}

}  // namespace unisono
