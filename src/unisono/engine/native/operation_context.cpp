#include "unisono/engine/native/operation_context.h"

#include <algorithm>
#include <array>

#include "unisono/base/error.h"
#include "unisono/base/reduction.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::engine {
namespace {

// Sizes of a rank's blocks as published in its slot.
struct SharedCounts {
  std::int64_t n;
  std::array<std::int64_t, shm::kSlotBytes / sizeof(std::int64_t) - 1> counts;
};

static_assert(sizeof(SharedCounts) <= shm::kSlotBytes);

SharedCounts& counts_in(std::byte* slot) {
  return *reinterpret_cast<SharedCounts*>(slot);
}

}  // namespace

shm::SlotPlacement OperationContext::place_in_arena() const {
  const shm::Arena& arena = control_block.arena(self());
  return {.in_offset = arena.offset_of(in_bytes(), operation.in.n_bytes()).value_or(-1),
          .out_offset = arena.offset_of(out_bytes(), operation.out.n_bytes()).value_or(-1),
          .in_address = 0,
          .out_address = 0};
}

void OperationContext::enter_with_buffers() {
  shm::SlotPlacement placement = place_in_arena();
  if (peers.is_shared_for_reductions()) {
    placement.in_address = reinterpret_cast<std::uintptr_t>(in_bytes());
    placement.out_address = reinterpret_cast<std::uintptr_t>(out_bytes());
  }
  enter_with(placement);
}

void OperationContext::enter_with(const shm::SlotPlacement& placement) {
  control_block.own_header(operation.sequence).placement = placement;
  enter();
}

void OperationContext::enter_with(std::span<const std::byte> payload) {
  std::copy(
      payload.begin(), payload.end(), control_block.own_header(operation.sequence).payload.begin());
  enter();
}

void OperationContext::enter() {
  control_block.own_header(operation.sequence).set_descriptor(operation.descriptor);
  control_block.enter(operation.sequence, mode, wait_monitor);
  check_headers();
}

// Skips this rank's own header: its cache line is on the way to the peers, and to wait for the line
// would take a quarter of the time of a meeting.
void OperationContext::check_headers() {
  for (int peer = 0; peer < n_local(); ++peer) {
    if (peer != self() && !header(peer).has_descriptor(operation.descriptor)) [[unlikely]] {
      throw mismatch();
    }
  }
}

// All ranks of the node read the same headers, so all produce the same text. A rank that could not
// wait for the others omits the block sizes.
Error OperationContext::mismatch() {
  const transport::Descriptor first = header(0).descriptor();
  int peer = 1;
  while (peer + 1 < n_local() && header(peer).has_descriptor(first)) {
    ++peer;
  }
  const transport::Descriptor other = header(peer).descriptor();
  const bool has_counts = transport::may_differ_in_blocks(first, other) && share_counts();
  const auto known = [&](int local_rank, const transport::Descriptor& descriptor) {
    return transport::KnownCall{
        .who = group.describe(rank_at(local_rank)),
        .sequence = operation.sequence,
        .descriptor = descriptor,
        .counts = has_counts ? shared_counts(local_rank) : std::vector<std::int64_t>()};
  };
  return transport::mismatch(known(0, first), known(peer, other), group.job_ranks);
}

// Publishes the sizes of this rank's blocks, as many as fit, in the rank's slot, which is free
// because the operation does not take place. Returns false unless all ranks of the node publish
// sizes: the mismatch is a better error than a later failure of a rank. Throws Error(kInterrupted).
bool OperationContext::share_counts() {
  const std::vector<std::int64_t> counts = transport::counts_of(agreed_blocks(called));
  SharedCounts& shared = counts_in(control_block.slot(self(), operation.sequence));
  const std::size_t n = std::min(counts.size(), shared.counts.size());
  shared.n = static_cast<std::int64_t>(n);
  std::copy_n(counts.begin(), n, shared.counts.begin());
  try {
    sync();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) {
      throw;
    }
    return false;
  }
  return true;
}

std::vector<std::int64_t> OperationContext::shared_counts(int local_rank) const {
  const SharedCounts& shared = counts_in(control_block.slot(local_rank, operation.sequence));
  const auto most = static_cast<std::int64_t>(shared.counts.size());
  const std::int64_t n = std::clamp<std::int64_t>(shared.n, 0, most);
  return {shared.counts.begin(), shared.counts.begin() + n};
}

std::vector<int> OperationContext::leaders_elsewhere() const {
  std::vector<int> leaders;
  for (int node = 0; node < topology.n_nodes(); ++node) {
    if (node != topology.node()) {
      leaders.push_back(topology.ranks_of(node).front());
    }
  }
  return leaders;
}

void OperationContext::meet_other_nodes() {
  if (topology.n_nodes() == 1) {
    return;
  }
  if (topology.local_rank() == 0) {
    std::vector<tcp::Outgoing> sends;
    std::vector<tcp::Incoming> receives;
    for (const int leader : leaders_elsewhere()) {
      sends.push_back({.rank = leader, .data = {}});
      receives.push_back({.rank = leader, .data = {}});
    }
    exchange.run(sends, receives);
  }
  sync();
}

void OperationContext::meet_every_rank() {
  control_block.own_header(operation.sequence).set_descriptor(operation.descriptor);
  control_block.show_header(operation.sequence);
  std::vector<tcp::Outgoing> sends;
  std::vector<tcp::Incoming> receives;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    if (topology.node_of(rank) != topology.node()) {
      sends.push_back({.rank = rank, .data = {}});
      receives.push_back({.rank = rank, .data = {}});
    }
  }
  const tcp::Exchange::LateRanks absent = [this] { return find_absent(); };
  exchange.run(sends, receives, &absent);
  control_block.wait_for_headers(operation.sequence, mode, wait_monitor);
  check_headers();
}

std::vector<int> OperationContext::find_absent() const {
  std::vector<int> absent = control_block.find_absent(operation.sequence);
  const std::vector<int> unmet = exchange.unmet_ranks();
  absent.insert(absent.end(), unmet.begin(), unmet.end());
  return absent;
}

std::int64_t OperationContext::elements_per_line() const {
  return std::max<std::int64_t>(static_cast<std::int64_t>(shm::kCacheLine) / element_bytes(), 1);
}

DType OperationContext::partial_type() const {
  return partial_dtype(operation.descriptor.dtype, operation.descriptor.reduce);
}

}  // namespace unisono::engine
