#include "unisono/engine/native/collectives/symmetric_reduction.h"

#include <cstdint>

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/node_chunk.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {

using collective::Receivers;

bool is_reachable(const OperationContext& context,
                  Receivers receivers,
                  int local_rank,
                  const shm::Placement& placement) {
  const bool is_written = receivers.kind != Receivers::Kind::kOwner &&
                          receivers.include(context.rank_at(local_rank), 0);
  return placement.in_offset >= 0 && (placement.out_offset >= 0 || !is_written);
}

bool is_symmetric(const OperationContext& context, Receivers receivers) {
  for (int peer = 0; peer < context.n_local(); ++peer) {
    if (!is_reachable(context, receivers, peer, context.header(peer).placement)) {
      return false;
    }
  }
  return true;
}

void reduce_symmetric(OperationContext& context, Receivers receivers, kernels::ReduceSteps steps) {
  const collective::ElementRange chunk = node_chunk(context, receivers.kind, context.self());
  const std::int64_t offset = chunk.begin * context.element_bytes();
  context.inputs.clear();
  context.outputs.clear();
  if (receivers.kind == Receivers::Kind::kOwner) {
    context.outputs.push_back(context.out_bytes());
  }
  for (int peer = 0; peer < context.n_local(); ++peer) {
    const shm::Placement& placement = context.header(peer).placement;
    context.inputs.push_back({.data = context.control_block.at(peer, placement.in_offset + offset),
                              .is_partial = false});
    const bool is_receiver =
        receivers.kind != Receivers::Kind::kOwner && receivers.include(context.rank_at(peer), 0);
    if (is_receiver) {
      context.outputs.push_back(context.control_block.at(peer, placement.out_offset + offset));
    }
  }
  kernels::ReduceTask task = context.reduce_task(context.inputs, steps, context.outputs);
  task.is_streaming = context.is_streaming();
  kernels::reduce(task, chunk.count());
  context.sync();
}

}  // namespace unisono::engine
