#include "unisono/engine/native/collectives/node_reductions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce.h"
#include "unisono/kernels/reduce_tree.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {
namespace {

using collective::ElementRange;
using collective::Receivers;

// What is read of all peers at once, to be reduced while it is in the cache.
constexpr std::int64_t kPieceBytes = 256 << 10;

// With less, what passes through staging buffers stays in the caches nearest to the cores, and what
// the kernel copies does not: more so where results are copied, too. With more than the last cache
// holds, staging hides the time of one rank's copies behind another's.
constexpr std::int64_t kLeastScattered = 256 << 10;
constexpr std::int64_t kLeastReduced = 2 << 20;
constexpr std::int64_t kMostReduced = 24 << 20;

class ReadingReduction {
 public:
  ReadingReduction(OperationContext& context,
                   const collective::ReducePlan& plan,
                   kernels::ReduceSteps steps)
      : context_(context),
        steps_(steps),
        receivers_(plan.receivers.kind),
        is_scattered_(receivers_ == Receivers::Kind::kOwner) {}

  void run() {
    const ElementRange mine = own_chunk(context_.self());
    const std::int64_t n_peers = std::max(context_.n_local() - 1, 1);
    const std::int64_t piece =
        std::max<std::int64_t>(kPieceBytes / n_peers / context_.element_bytes(), 1);
    for (std::int64_t begin = mine.begin; begin < mine.end; begin += piece) {
      reduce_piece({.begin = begin, .end = std::min(begin + piece, mine.end)});
    }
    context_.sync();
    if (!is_scattered_) {
      take_results();
      context_.sync();
    }
  }

 private:
  [[nodiscard]] const shm::Placement& placement(int peer) const {
    return context_.header(peer).placement;
  }

  [[nodiscard]] ElementRange own_chunk(int local_rank) const {
    return node_chunk(context_, receivers_, local_rank);
  }

  void reduce_piece(ElementRange range) {
    const std::int64_t offset = range.begin * context_.element_bytes();
    const auto n_bytes = static_cast<std::size_t>(range.count() * context_.element_bytes());
    const auto n_peers = static_cast<std::size_t>(context_.n_local() - 1);
    context_.scratch.resize(std::max(context_.scratch.size(), n_peers * n_bytes));
    std::span<std::byte> rest = context_.scratch;
    context_.inputs.clear();
    for (int peer = 0; peer < context_.n_local(); ++peer) {
      const std::byte* data = context_.in_bytes() + offset;
      if (peer != context_.self()) {
        context_.peers.read(peer,
                            placement(peer).in_address + static_cast<std::uint64_t>(offset),
                            rest.first(n_bytes));
        data = rest.data();
        rest = rest.subspan(n_bytes);
      }
      context_.inputs.push_back({.data = data, .is_partial = false});
    }
    const std::int64_t skipped =
        is_scattered_ ? own_chunk(context_.self()).begin * context_.element_bytes() : 0;
    void* const output = context_.out_bytes() + offset - skipped;
    kernels::reduce(context_.reduce_task(context_.inputs, steps_, std::span(&output, 1)),
                    range.count());
  }

  void take_results() {
    for (int step = 1; step < context_.n_local(); ++step) {
      const int peer = (context_.self() + step) % context_.n_local();
      const ElementRange range = own_chunk(peer);
      const std::int64_t offset = range.begin * context_.element_bytes();
      const auto n_bytes = static_cast<std::size_t>(range.count() * context_.element_bytes());
      context_.peers.read(peer,
                          placement(peer).out_address + static_cast<std::uint64_t>(offset),
                          {context_.out_bytes() + offset, n_bytes});
    }
  }

  OperationContext& context_;
  kernels::ReduceSteps steps_;
  Receivers::Kind receivers_;
  bool is_scattered_;
};

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
    const shm::Placement& placement = context.header(peer).placement;
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
  ReadingReduction(context, plan, steps).run();
}

}  // namespace unisono::engine
