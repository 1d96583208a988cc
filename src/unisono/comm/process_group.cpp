#include "unisono/comm/process_group.h"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/options.h"
#include "unisono/comm/work.h"
#include "unisono/rendezvous/roster.h"

namespace unisono {

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
  group_->run(comm::all_reduce_call(group_->job(), in, out, options));
}

Work ProcessGroup::all_reduce_async(const Buffer& in,
                                    const Buffer& out,
                                    const AllReduceOptions& options) {
  return group_->submit(comm::all_reduce_call(group_->job(), in, out, options));
}

void ProcessGroup::all_reduce(const Buffer& in_out, const AllReduceOptions& options) {
  all_reduce(in_out, in_out, options);
}

Work ProcessGroup::all_reduce_async(const Buffer& in_out, const AllReduceOptions& options) {
  return all_reduce_async(in_out, in_out, options);
}

void ProcessGroup::reduce(const Buffer& in, const Buffer& out, const ReduceOptions& options) {
  group_->run(comm::reduce_call(group_->job(), in, out, options));
}

Work ProcessGroup::reduce_async(const Buffer& in, const Buffer& out, const ReduceOptions& options) {
  return group_->submit(comm::reduce_call(group_->job(), in, out, options));
}

void ProcessGroup::reduce_scatter(const Buffer& in,
                                  const Buffer& out,
                                  const ReduceScatterOptions& options) {
  group_->run(comm::reduce_scatter_call(group_->job(), in, out, options));
}

Work ProcessGroup::reduce_scatter_async(const Buffer& in,
                                        const Buffer& out,
                                        const ReduceScatterOptions& options) {
  return group_->submit(comm::reduce_scatter_call(group_->job(), in, out, options));
}

void ProcessGroup::reduce_scatter(std::span<const Buffer> ins,
                                  const Buffer& out,
                                  const ReduceScatterOptions& options) {
  group_->run(comm::reduce_scatter_call(group_->job(), ins, out, options));
}

Work ProcessGroup::reduce_scatter_async(std::span<const Buffer> ins,
                                        const Buffer& out,
                                        const ReduceScatterOptions& options) {
  return group_->submit(comm::reduce_scatter_call(group_->job(), ins, out, options));
}

void ProcessGroup::broadcast(const Buffer& buffer, const BroadcastOptions& options) {
  group_->run(comm::broadcast_call(group_->job(), buffer, options));
}

Work ProcessGroup::broadcast_async(const Buffer& buffer, const BroadcastOptions& options) {
  return group_->submit(comm::broadcast_call(group_->job(), buffer, options));
}

void ProcessGroup::all_gather(const Buffer& in,
                              const Buffer& out,
                              const AllGatherOptions& options) {
  group_->run(comm::all_gather_call(group_->job(), in, out, options));
}

Work ProcessGroup::all_gather_async(const Buffer& in,
                                    const Buffer& out,
                                    const AllGatherOptions& options) {
  return group_->submit(comm::all_gather_call(group_->job(), in, out, options));
}

void ProcessGroup::all_gather(const Buffer& in,
                              std::span<const Buffer> outs,
                              const AllGatherOptions& options) {
  group_->run(comm::all_gather_call(group_->job(), in, outs, options));
}

Work ProcessGroup::all_gather_async(const Buffer& in,
                                    std::span<const Buffer> outs,
                                    const AllGatherOptions& options) {
  return group_->submit(comm::all_gather_call(group_->job(), in, outs, options));
}

void ProcessGroup::gather(const Buffer& in, const Buffer& out, const GatherOptions& options) {
  group_->run(comm::gather_call(group_->job(), in, out, options));
}

Work ProcessGroup::gather_async(const Buffer& in, const Buffer& out, const GatherOptions& options) {
  return group_->submit(comm::gather_call(group_->job(), in, out, options));
}

void ProcessGroup::gather(const Buffer& in,
                          std::span<const Buffer> outs,
                          const GatherOptions& options) {
  group_->run(comm::gather_call(group_->job(), in, outs, options));
}

Work ProcessGroup::gather_async(const Buffer& in,
                                std::span<const Buffer> outs,
                                const GatherOptions& options) {
  return group_->submit(comm::gather_call(group_->job(), in, outs, options));
}

void ProcessGroup::scatter(const Buffer& in, const Buffer& out, const ScatterOptions& options) {
  group_->run(comm::scatter_call(group_->job(), in, out, options));
}

Work ProcessGroup::scatter_async(const Buffer& in,
                                 const Buffer& out,
                                 const ScatterOptions& options) {
  return group_->submit(comm::scatter_call(group_->job(), in, out, options));
}

void ProcessGroup::scatter(std::span<const Buffer> ins,
                           const Buffer& out,
                           const ScatterOptions& options) {
  group_->run(comm::scatter_call(group_->job(), ins, out, options));
}

Work ProcessGroup::scatter_async(std::span<const Buffer> ins,
                                 const Buffer& out,
                                 const ScatterOptions& options) {
  return group_->submit(comm::scatter_call(group_->job(), ins, out, options));
}

void ProcessGroup::all_to_all(const Buffer& in, const Buffer& out, const AllToAllOptions& options) {
  group_->run(comm::all_to_all_call(group_->job(), in, out, options));
}

Work ProcessGroup::all_to_all_async(const Buffer& in,
                                    const Buffer& out,
                                    const AllToAllOptions& options) {
  return group_->submit(comm::all_to_all_call(group_->job(), in, out, options));
}

void ProcessGroup::all_to_all(std::span<const Buffer> ins,
                              std::span<const Buffer> outs,
                              const AllToAllOptions& options) {
  group_->run(comm::all_to_all_call(group_->job(), ins, outs, options));
}

Work ProcessGroup::all_to_all_async(std::span<const Buffer> ins,
                                    std::span<const Buffer> outs,
                                    const AllToAllOptions& options) {
  return group_->submit(comm::all_to_all_call(group_->job(), ins, outs, options));
}

void ProcessGroup::barrier(const BarrierOptions& options) {
  group_->run(comm::barrier_call(group_->job(), options));
}

Work ProcessGroup::barrier_async(const BarrierOptions& options) {
  return group_->submit(comm::barrier_call(group_->job(), options));
}

Buffer ProcessGroup::allocate(std::int64_t count, DType dtype) {
  return group_->job().engine().allocate(count, dtype);
}

void ProcessGroup::destroy() {
  group_->destroy();
}

}  // namespace unisono
