#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/collective/canonical_tree.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/native/collectives/algorithm_choice.h"
#include "unisono/engine/native/collectives/collectives.h"
#include "unisono/engine/native/collectives/window_reduction.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/kernels/reduce.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {
namespace {

using collective::Receivers;
using collective::ReducePlan;

template <class Key, class Plan, class Make>
const Plan& find_or_make(std::map<Key, Plan>& plans, Key key, Make make) {
  auto found = plans.find(key);
  if (found == plans.end()) {
    found = plans.emplace(key, make()).first;
  }
  return found->second;
}

}  // namespace

ReducePlans::ReducePlans(const collective::Topology& topology)
    : topology_(topology),
      whole_tree_(
          collective::reduce_steps(collective::leaves_of({.lo = 0, .hi = topology.world_size()}),
                                   {.lo = 0, .hi = topology.world_size()})) {}

const ReducePlan& ReducePlans::one_shot(Receivers receivers) {
  return find_or_make(one_shot_[receivers.kind], receivers.root, [&] {
    return collective::one_shot_plan(topology_, receivers);
  });
}

const ReducePlan& ReducePlans::two_shot(Receivers receivers) {
  return find_or_make(two_shot_[receivers.kind], receivers.root, [&] {
    return collective::two_shot_plan(topology_, receivers);
  });
}

const collective::StepPlan& ReducePlans::in_steps(Algorithm algorithm) {
  return find_or_make(in_steps_, algorithm, [&] {
    return collective::step_plan(algorithm, topology_.rank(), topology_.world_size());
  });
}

namespace {

using collective::Receivers;
using collective::ReducePlan;

constexpr shm::SlotPlacement kNowhere{
    .in_offset = -1, .out_offset = -1, .in_address = 0, .out_address = 0};

// For smaller contributions a copy takes less time than a second meeting. A meeting takes longer if
// ranks share a core.
constexpr std::int64_t kLeastReached = 1 << 10;
constexpr std::int64_t kLeastReachedOnSharedCore = 4 << 10;

// Copies this rank's contribution, block by block, into the slot that its peers read.
void copy_into_slot(OperationContext& context) {
  std::byte* slot = context.control_block.slot(context.self(), context.operation.sequence);
  const std::span<const Buffer> parts = context.operation.ins.empty()
                                            ? std::span(&context.operation.in, 1)
                                            : std::span(context.operation.ins);
  for (const Buffer& part : parts) {
    slot = std::copy_n(static_cast<const std::byte*>(part.data), part.n_bytes(), slot);
  }
}

// Returns this rank's contribution to the rank's own result, in the caller's buffer.
const std::byte* own_contribution(const OperationContext& context) {
  const std::vector<Buffer>& blocks = context.operation.ins;
  const auto rank = static_cast<std::size_t>(context.topology.rank());
  return blocks.empty() ? context.in_bytes() : static_cast<const std::byte*>(blocks[rank].data);
}

// Returns true if reading the contributions in place, where possible, is faster than copying. The
// result is equal on all ranks.
bool may_be_reached(const OperationContext& context) {
  return contribution_bytes(context.operation) >= kLeastReached &&
         context.operation.descriptor.algorithm != Algorithm::kOneShot;
}

// A rank with reachable buffers copies no data, unless the buffers of another rank are not
// reachable. Returns whether the buffers of all ranks are reachable.
bool enter_with_slot_or_buffers(OperationContext& context, Receivers receivers) {
  const bool is_worth_it =
      context.has_cores || contribution_bytes(context.operation) >= kLeastReachedOnSharedCore;
  const shm::SlotPlacement placement = is_worth_it ? context.place_in_arena() : kNowhere;
  const bool is_own_reachable = is_reachable(context, receivers, context.self(), placement);
  if (!is_own_reachable) {
    copy_into_slot(context);
  }
  context.enter_with(is_own_reachable ? placement : kNowhere);
  int n_reachable = is_own_reachable ? 1 : 0;
  for (int peer = 0; peer < context.n_local(); ++peer) {
    const bool is_other = peer != context.self();
    n_reachable +=
        is_other && is_reachable(context, receivers, peer, context.header(peer).placement) ? 1 : 0;
  }
  if (n_reachable == context.n_local()) {
    return true;
  }
  if (n_reachable > 0) {
    if (is_own_reachable) {
      copy_into_slot(context);
    }
    context.sync();
  }
  return false;
}

// Calls `action` with the windows. The segments of staged windows are small enough to be in the
// cache when peers read them.
template <class Action>
void with_windows(const OperationContext& context,
                  const ReducePlan& plan,
                  std::int64_t window_bytes,
                  Action action) {
  const std::int64_t window_elements = window_bytes / context.element_bytes();
  if (plan.receivers.kind != Receivers::Kind::kOwner) {
    action(VectorWindows(context, plan, window_elements));
    return;
  }
  const std::int64_t grain = context.elements_per_line();
  const std::int64_t share = window_elements / plan.n_chunks / grain * grain;
  action(BlockWindows(context, plan, std::max(share, grain)));
}

// In step k a rank copies the result of window k - 2 out of a staging buffer, copies the
// contribution to window k into the same buffer, and reduces the rank's chunk of window k - 1. Each
// step thus needs a single meeting, and two buffers suffice.
template <class Windows>
void reduce_pipelined(OperationContext& context, const ReducePlan& plan, const Windows& windows) {
  const std::int64_t n_windows = windows.n_windows();
  for (std::int64_t step = 0; step < n_windows + 2; ++step) {
    if (step >= 2) {
      windows.copy_out(step - 2);
    }
    if (step < n_windows) {
      windows.copy_in(step);
    }
    if (step >= 1 && step <= n_windows) {
      const Window window = windows.staged(step - 1);
      WindowReduction(context, plan, window).run();
      windows.hand_back(step - 1);
    }
    if (step < n_windows + 1) {
      context.sync();
    }
  }
}

// The size of a window must not depend on the place of the buffers in memory, which differs between
// nodes.
template <class Windows>
void reduce_between_nodes(OperationContext& context,
                          const ReducePlan& plan,
                          const Windows& windows) {
  const bool is_in_place = is_symmetric(context, plan.receivers);
  for (std::int64_t index = 0; index < windows.n_windows(); ++index) {
    if (is_in_place) {
      const Window window = windows.symmetric(index);
      WindowReduction(context, plan, window).run();
      continue;
    }
    windows.copy_in(index);
    context.sync();
    const Window window = windows.staged(index);
    WindowReduction(context, plan, window).run();
    context.sync();
    windows.copy_out(index);
  }
  context.sync();
}

}  // namespace

void reduce_in_slots(OperationContext& context,
                     const ReducePlan& plan,
                     kernels::ReduceSteps steps) {
  const std::int64_t n_bytes = context.operation.in.n_bytes();
  const bool is_inline = n_bytes <= shm::kInlineBytes && context.operation.ins.empty();
  if (is_inline) {
    context.enter_with({context.in_bytes(), static_cast<std::size_t>(n_bytes)});
  } else if (!may_be_reached(context)) {
    copy_into_slot(context);
    context.enter();
  } else if (enter_with_slot_or_buffers(context, plan.receivers)) {
    reduce_symmetric(context, plan.receivers, steps);
    return;
  }
  const bool is_scattered = plan.receivers.kind == Receivers::Kind::kOwner;
  const int rank = context.topology.rank();
  if (!plan.receivers.include(rank, is_scattered ? rank : 0)) {
    return;
  }
  const std::int64_t offset =
      is_scattered
          ? node_chunk(context, plan.receivers.kind, context.self()).begin * context.element_bytes()
          : 0;
  context.inputs.clear();
  for (int peer = 0; peer < context.n_local(); ++peer) {
    // The cache lines of this rank's contribution are on the way to its peers, so the caller's
    // buffer is read.
    const std::byte* const data =
        peer == context.self() ? own_contribution(context)
        : is_inline            ? context.header(peer).payload.data()
                    : context.control_block.slot(peer, context.operation.sequence) + offset;
    context.inputs.push_back({.data = data, .is_partial = false});
  }
  void* const output = context.out_bytes();
  kernels::reduce(context.reduce_task(context.inputs, steps, std::span(&output, 1)),
                  context.operation.out.count);
  if (context.has_one_peer() && !is_inline) {
    shm::hand_back(
        context.control_block.slot(1 - context.self(), context.operation.sequence) + offset,
        static_cast<std::size_t>(context.operation.out.n_bytes()));
  }
}

void reduce_one_shot(OperationContext& context, const ReducePlan& plan) {
  copy_into_slot(context);
  context.enter();
  const std::int64_t count = context.count();
  Window window{.chunks = {{.in_begin = 0, .out_begin = 0, .count = count}}, .in = {}, .out = {}};
  for (int peer = 0; peer < context.n_local(); ++peer) {
    const bool is_self = peer == context.self();
    window.in.push_back(context.control_block.slot(peer, context.operation.sequence));
    window.out.push_back(is_self ? context.out_bytes()
                                 : context.control_block.staging_out(peer, 0));
  }
  WindowReduction(context, plan, window).run();
  context.sync();
  const bool is_receiver = plan.receivers.include(context.topology.rank(), 0);
  if (is_receiver && plan.chunks.empty()) {
    std::copy_n(context.control_block.staging_out(context.self(), 0),
                context.operation.out.n_bytes(),
                context.out_bytes());
  }
}

void reduce_two_shot(OperationContext& context,
                     const ReducePlan& plan,
                     kernels::ReduceSteps steps) {
  context.enter_with_buffers();
  if (context.topology.n_nodes() > 1) {
    with_windows(context, plan, shm::kStagingBytes, [&](const auto& windows) {
      reduce_between_nodes(context, plan, windows);
    });
    return;
  }
  if (is_symmetric(context, plan.receivers)) {
    reduce_symmetric(context, plan.receivers, steps);
    return;
  }
  if (can_reduce_by_reading(context, plan)) {
    reduce_by_reading(context, plan, steps);
    return;
  }
  with_windows(context, plan, shm::kSegmentBytes, [&](const auto& windows) {
    reduce_pipelined(context, plan, windows);
  });
  context.peers.learn();
}

}  // namespace unisono::engine
