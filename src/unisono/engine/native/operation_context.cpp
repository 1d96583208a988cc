#include "unisono/engine/native/operation_context.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/tcp/exchange.h"

namespace unisono::engine {
namespace {

// What a rank shows in its slot of the sizes of its blocks.
struct SharedCounts {
  std::int64_t n;
  std::array<std::int64_t, shm::kSlotBytes / sizeof(std::int64_t) - 1> counts;
};

static_assert(sizeof(SharedCounts) <= shm::kSlotBytes);

SharedCounts& counts_in(std::byte* slot) {
  return *reinterpret_cast<SharedCounts*>(slot);
}

}  // namespace

shm::Placement OperationContext::place_in_arena() const {
  const shm::Arena& arena = control_block.arena(self());
  return {.in_offset = arena.offset_of(in_bytes(), operation.in.n_bytes()).value_or(-1),
          .out_offset = arena.offset_of(out_bytes(), operation.out.n_bytes()).value_or(-1),
          .in_address = 0,
          .out_address = 0};
}

void OperationContext::enter_with_buffers() {
  shm::Placement placement = place_in_arena();
  if (peers.is_shared_for_reductions()) {
    placement.in_address = reinterpret_cast<std::uintptr_t>(in_bytes());
    placement.out_address = reinterpret_cast<std::uintptr_t>(out_bytes());
  }
  enter_with(placement);
}

void OperationContext::enter_with(const shm::Placement& placement) {
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

// Not with this rank's own header: its line is on the way to the peers, and waiting for it would
// take as long as a quarter of a meeting.
void OperationContext::check_headers() {
  for (int peer = 0; peer < n_local(); ++peer) {
    if (peer != self() && !header(peer).has_descriptor(operation.descriptor)) [[unlikely]] {
      throw mismatch();
    }
  }
}

// All ranks of the node see the same headers, so all come to the same words, save that one which
// could not wait for the others knows no sizes.
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
        .who = ranks.describe(rank_at(local_rank)),
        .sequence = operation.sequence,
        .descriptor = descriptor,
        .counts = has_counts ? shared_counts(local_rank) : std::vector<std::int64_t>()};
  };
  return transport::mismatch(known(0, first), known(peer, other), ranks.job_ranks());
}

// As many of the sizes of this rank's blocks as fit, in its slot: the operation that would use it
// does not take place. False if not all of the node did: that ranks differ is known, and says more
// than what became of a rank since.
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
