#include "unisono/comm/process_group.h"

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/comm/blocks.h"
#include "unisono/comm/call.h"
#include "unisono/comm/group.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/new_groups.h"
#include "unisono/comm/options.h"
#include "unisono/comm/work.h"
#include "unisono/engine/native_engines.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/descriptor.h"

namespace unisono {

comm::Group& comm::group_of(ProcessGroup& group) {
  return *group.group_;
}

using comm::lend;
using transport::OperationKind;

ProcessGroup::ProcessGroup(std::unique_ptr<comm::Group> group) : group_(std::move(group)) {}

ProcessGroup::~ProcessGroup() = default;

int ProcessGroup::rank() const {
  return group_->membership().topology().rank();
}

int ProcessGroup::world_size() const {
  return group_->membership().topology().world_size();
}

int ProcessGroup::local_rank() const {
  return group_->membership().topology().local_rank();
}

int ProcessGroup::local_world_size() const {
  return group_->membership().topology().local_world_size();
}

const rendezvous::Roster& ProcessGroup::roster() const {
  return group_->membership().roster();
}

std::vector<RankTraffic> ProcessGroup::traffic() const {
  return group_->membership().traffic();
}

Algorithm ProcessGroup::last_algorithm() const {
  return group_->membership().engine().last_algorithm();
}

void ProcessGroup::all_reduce(const Buffer& in,
                              const Buffer& out,
                              const AllReduceOptions& options) {
  group_->run(comm::all_reduce_call(group_->membership(), lend(in), lend(out), options));
}

Work ProcessGroup::all_reduce_async(const Buffer& in,
                                    const Buffer& out,
                                    const AllReduceOptions& options) {
  return group_->submit(comm::all_reduce_call(group_->membership(), in, out, options));
}

void ProcessGroup::all_reduce(const Buffer& in_out, const AllReduceOptions& options) {
  all_reduce(in_out, in_out, options);
}

Work ProcessGroup::all_reduce_async(const Buffer& in_out, const AllReduceOptions& options) {
  return all_reduce_async(in_out, in_out, options);
}

void ProcessGroup::all_reduce_coalesced(std::span<const Buffer> in_out,
                                        const AllReduceOptions& options) {
  group_->run(comm::all_reduce_coalesced_call(group_->membership(), in_out, options));
}

Work ProcessGroup::all_reduce_coalesced_async(std::span<const Buffer> in_out,
                                              const AllReduceOptions& options) {
  return group_->submit(comm::all_reduce_coalesced_call(group_->membership(), in_out, options));
}

void ProcessGroup::reduce_scatter_coalesced(std::span<const Buffer> ins,
                                            std::span<const Buffer> outs,
                                            const ReduceScatterOptions& options) {
  group_->run(comm::reduce_scatter_coalesced_call(group_->membership(), ins, outs, options));
}

Work ProcessGroup::reduce_scatter_coalesced_async(std::span<const Buffer> ins,
                                                  std::span<const Buffer> outs,
                                                  const ReduceScatterOptions& options) {
  return group_->submit(
      comm::reduce_scatter_coalesced_call(group_->membership(), ins, outs, options));
}

void ProcessGroup::all_gather_coalesced(std::span<const Buffer> ins,
                                        std::span<const Buffer> outs,
                                        const AllGatherOptions& options) {
  group_->run(comm::all_gather_coalesced_call(group_->membership(), ins, outs, options));
}

Work ProcessGroup::all_gather_coalesced_async(std::span<const Buffer> ins,
                                              std::span<const Buffer> outs,
                                              const AllGatherOptions& options) {
  return group_->submit(comm::all_gather_coalesced_call(group_->membership(), ins, outs, options));
}

void ProcessGroup::reduce(const Buffer& in, const Buffer& out, const ReduceOptions& options) {
  group_->run(comm::reduce_call(group_->membership(), lend(in), lend(out), options));
}

Work ProcessGroup::reduce_async(const Buffer& in, const Buffer& out, const ReduceOptions& options) {
  return group_->submit(comm::reduce_call(group_->membership(), in, out, options));
}

void ProcessGroup::reduce_scatter(const Blocks& in,
                                  const Buffer& out,
                                  const ReduceScatterOptions& options) {
  group_->run(comm::reduce_scatter_call(group_->membership(), lend(in), lend(out), options));
}

Work ProcessGroup::reduce_scatter_async(const Blocks& in,
                                        const Buffer& out,
                                        const ReduceScatterOptions& options) {
  return group_->submit(comm::reduce_scatter_call(group_->membership(), in, out, options));
}

void ProcessGroup::broadcast(const Buffer& buffer, const BroadcastOptions& options) {
  group_->run(comm::broadcast_call(group_->membership(), lend(buffer), options));
}

Work ProcessGroup::broadcast_async(const Buffer& buffer, const BroadcastOptions& options) {
  return group_->submit(comm::broadcast_call(group_->membership(), buffer, options));
}

void ProcessGroup::all_gather(const Buffer& in,
                              const Blocks& out,
                              const AllGatherOptions& options) {
  group_->run(comm::all_gather_call(group_->membership(), lend(in), lend(out), options));
}

Work ProcessGroup::all_gather_async(const Buffer& in,
                                    const Blocks& out,
                                    const AllGatherOptions& options) {
  return group_->submit(comm::all_gather_call(group_->membership(), in, out, options));
}

void ProcessGroup::gather(const Buffer& in, const Blocks& out, const GatherOptions& options) {
  group_->run(comm::rooted_call(
      group_->membership(), OperationKind::kGather, lend(in), lend(out), options));
}

Work ProcessGroup::gather_async(const Buffer& in, const Blocks& out, const GatherOptions& options) {
  return group_->submit(
      comm::rooted_call(group_->membership(), OperationKind::kGather, in, out, options));
}

void ProcessGroup::scatter(const Blocks& in, const Buffer& out, const ScatterOptions& options) {
  group_->run(comm::rooted_call(
      group_->membership(), OperationKind::kScatter, lend(out), lend(in), options));
}

Work ProcessGroup::scatter_async(const Blocks& in,
                                 const Buffer& out,
                                 const ScatterOptions& options) {
  return group_->submit(
      comm::rooted_call(group_->membership(), OperationKind::kScatter, out, in, options));
}

void ProcessGroup::all_to_all(const Blocks& in, const Blocks& out, const AllToAllOptions& options) {
  group_->run(comm::all_to_all_call(group_->membership(), lend(in), lend(out), options));
}

Work ProcessGroup::all_to_all_async(const Blocks& in,
                                    const Blocks& out,
                                    const AllToAllOptions& options) {
  return group_->submit(comm::all_to_all_call(group_->membership(), in, out, options));
}

void ProcessGroup::barrier(const BarrierOptions& options) {
  group_->run(comm::barrier_call(group_->membership(), OperationKind::kBarrier, options));
}

Work ProcessGroup::barrier_async(const BarrierOptions& options) {
  return group_->submit(comm::barrier_call(group_->membership(), OperationKind::kBarrier, options));
}

void ProcessGroup::monitored_barrier(const BarrierOptions& options) {
  group_->run(comm::barrier_call(group_->membership(), OperationKind::kMonitoredBarrier, options));
}

Work ProcessGroup::monitored_barrier_async(const BarrierOptions& options) {
  return group_->submit(
      comm::barrier_call(group_->membership(), OperationKind::kMonitoredBarrier, options));
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
  return group_->membership().engine().allocate(count, dtype);
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
  return group_->membership().refuse(call, problem);
}

}  // namespace unisono
