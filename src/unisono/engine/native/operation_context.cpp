#include "unisono/engine/native/operation_context.h"

#include <fmt/format.h>

#include <algorithm>
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
#include "unisono/transport/shm/board.h"
#include "unisono/transport/tcp/exchange.h"

namespace unisono::engine {

shm::Placement OperationContext::place_in_arena() const {
  const shm::Arena& arena = board.arena(self());
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
  board.my_card(operation.sequence).placement = placement;
  show_card_and_wait();
}

void OperationContext::enter_with(std::span<const std::byte> payload) {
  std::copy(payload.begin(), payload.end(), board.my_card(operation.sequence).payload.begin());
  show_card_and_wait();
}

void OperationContext::show_card_and_wait() {
  board.my_card(operation.sequence).set_descriptor(operation.descriptor);
  board.enter(operation.sequence, mode, patience);
  check_cards();
}

// Not with this rank's own card: its line is on the way to the peers, and waiting for it would take
// as long as a quarter of a meeting.
void OperationContext::check_cards() const {
  for (int peer = 0; peer < n_local(); ++peer) {
    if (peer != self() && !card(peer).has_descriptor(operation.descriptor)) [[unlikely]] {
      throw mismatch();
    }
  }
}

// All ranks of the node see the same cards, so all come to the same words.
Error OperationContext::mismatch() const {
  const transport::Descriptor first = card(0).descriptor();
  int peer = 1;
  while (peer + 1 < n_local() && card(peer).has_descriptor(first)) {
    ++peer;
  }
  return {ErrorCode::kMismatch,
          fmt::format("ranks called different operations: rank {} called {}, rank {} called {}",
                      rank_at(0),
                      transport::describe(first, operation.sequence),
                      rank_at(peer),
                      transport::describe(card(peer).descriptor(), operation.sequence))};
}

void OperationContext::meet_other_nodes() {
  if (topology.n_nodes() == 1) {
    return;
  }
  if (topology.local_rank() == 0) {
    std::vector<tcp::Outgoing> sends;
    std::vector<tcp::Incoming> receives;
    for (int node = 0; node < topology.n_nodes(); ++node) {
      if (node != topology.node()) {
        const int leader = topology.ranks_of(node).front();
        sends.push_back({.rank = leader, .data = {}});
        receives.push_back({.rank = leader, .data = {}});
      }
    }
    exchange.run(sends, receives);
  }
  sync();
}

std::int64_t OperationContext::elements_per_line() const {
  return std::max<std::int64_t>(static_cast<std::int64_t>(shm::kCacheLine) / element_bytes(), 1);
}

DType OperationContext::partial_type() const {
  return partial_dtype(operation.descriptor.dtype, operation.descriptor.reduce);
}

}  // namespace unisono::engine
