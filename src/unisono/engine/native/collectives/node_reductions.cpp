#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/collectives/collectives.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {
namespace {

using collective::ElementRange;
using collective::Receivers;

// Bytes that are read from all peers together, and reduced while they are in the cache.
constexpr std::int64_t kPieceBytes = 256 << 10;

// Small data that passes through staging buffers stays in the caches nearest to the cores, but data
// that the kernel copies does not; the difference is greater if results are copied, too. For data
// larger than the last cache, staging overlaps the copies of different ranks.
constexpr std::int64_t kLeastScattered = 256 << 10;
constexpr std::int64_t kLeastReduced = 2 << 20;
// Above this size staging is faster for all_reduce.
constexpr std::int64_t kMostReduced = 24 << 20;

// Reads a range of all peers' inputs, and reduces it into this rank's output.
void reduce_piece(OperationContext& context,
                  Receivers::Kind receivers,
                  kernels::ReduceSteps steps,
                  ElementRange range) {
  const std::int64_t offset = range.begin * context.element_bytes();
  const auto n_bytes = static_cast<std::size_t>(range.count() * context.element_bytes());
  const auto n_peers = static_cast<std::size_t>(context.n_local() - 1);
  context.scratch.resize(std::max(context.scratch.size(), n_peers * n_bytes));
  std::span<std::byte> rest = context.scratch;
  context.inputs.clear();
  for (int peer = 0; peer < context.n_local(); ++peer) {
    const std::byte* data = context.in_bytes() + offset;
    if (peer != context.self()) {
      const std::uint64_t in = context.header(peer).placement.in_address;
      context.peers.read(peer, in + static_cast<std::uint64_t>(offset), rest.first(n_bytes));
      data = rest.data();
      rest = rest.subspan(n_bytes);
    }
    context.inputs.push_back({.data = data, .is_partial = false});
  }
  const std::int64_t first = receivers == Receivers::Kind::kOwner
                                 ? node_chunk(context, receivers, context.self()).begin
                                 : 0;
  void* const output = context.out_bytes() + offset - first * context.element_bytes();
  kernels::reduce(context.reduce_task(context.inputs, steps, std::span(&output, 1)), range.count());
}

// Reads the chunks of the result that the peers have reduced.
void take_results(const OperationContext& context, Receivers::Kind receivers) {
  for (int step = 1; step < context.n_local(); ++step) {
    const int peer = (context.self() + step) % context.n_local();
    const ElementRange range = node_chunk(context, receivers, peer);
    const std::int64_t offset = range.begin * context.element_bytes();
    const auto n_bytes = static_cast<std::size_t>(range.count() * context.element_bytes());
    const std::uint64_t out = context.header(peer).placement.out_address;
    context.peers.read(
        peer, out + static_cast<std::uint64_t>(offset), {context.out_bytes() + offset, n_bytes});
  }
}

}  // namespace

collective::ElementRange node_chunk(const OperationContext& context,
                                    collective::Receivers::Kind receivers,
                                    int local_rank) {
  if (receivers != collective::Receivers::Kind::kOwner) {
    return collective::chunk_of({.begin = 0, .end = context.count()},
                                context.n_local(),
                                local_rank,
                                context.elements_per_line());
  }
  const std::span<const Buffer> blocks = context.operation.ins;
  const auto index = static_cast<std::size_t>(local_rank);
  std::int64_t begin = 0;
  for (const Buffer& block : blocks.first(index)) {
    begin += block.count;
  }
  return {.begin = begin, .end = begin + blocks[index].count};
}

bool is_reachable(const OperationContext& context,
                  Receivers receivers,
                  int local_rank,
                  const shm::SlotPlacement& placement) {
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
    const shm::SlotPlacement& placement = context.header(peer).placement;
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

bool can_reduce_by_reading(const OperationContext& context, const collective::ReducePlan& plan) {
  const Receivers::Kind kind = plan.receivers.kind;
  const std::int64_t n_bytes = contribution_bytes(context.operation);
  const bool is_worth_it = kind == Receivers::Kind::kOwner
                               ? n_bytes >= kLeastScattered
                               : n_bytes >= kLeastReduced && n_bytes <= kMostReduced;
  if (kind == Receivers::Kind::kRoot || context.topology.n_nodes() > 1 ||
      !(is_worth_it || context.peers.is_forced())) {
    return false;
  }
  for (int peer = 0; peer < context.n_local(); ++peer) {
    const shm::SlotPlacement& placement = context.header(peer).placement;
    const bool is_shown = placement.in_address != 0 &&
                          (placement.out_address != 0 || kind == Receivers::Kind::kOwner);
    if (!is_shown) {
      return false;
    }
  }
  return true;
}

void reduce_by_reading(OperationContext& context,
                       const collective::ReducePlan& plan,
                       kernels::ReduceSteps steps) {
  const Receivers::Kind receivers = plan.receivers.kind;
  const ElementRange mine = node_chunk(context, receivers, context.self());
  const std::int64_t n_peers = std::max(context.n_local() - 1, 1);
  const std::int64_t piece =
      std::max<std::int64_t>(kPieceBytes / n_peers / context.element_bytes(), 1);
  for (std::int64_t begin = mine.begin; begin < mine.end; begin += piece) {
    reduce_piece(
        context, receivers, steps, {.begin = begin, .end = std::min(begin + piece, mine.end)});
  }
  context.sync();
  if (receivers != Receivers::Kind::kOwner) {
    take_results(context, receivers);
    context.sync();
  }
}

}  // namespace unisono::engine
