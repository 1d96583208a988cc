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

void OperationContext::enter_with_buffers() {
  const shm::Arena& arena = board.arena(self());
  const auto address_of = [](const std::byte* data) {
    return reinterpret_cast<std::uintptr_t>(data);
  };
  const bool is_shared = peers.is_shared_for_reductions();
  board.my_card(operation.sequence).placement = {
      .in_offset = arena.offset_of(in_bytes(), operation.in.n_bytes()).value_or(-1),
      .out_offset = arena.offset_of(out_bytes(), operation.out.n_bytes()).value_or(-1),
      .in_address = is_shared ? address_of(in_bytes()) : 0,
      .out_address = is_shared ? address_of(out_bytes()) : 0};
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

// All ranks of the node see the same cards, so all come to the same words.
void OperationContext::check_cards() const {
  const shm::Card& first = card(0);
  for (int peer = 1; peer < n_local(); ++peer) {
    const shm::Card& other = card(peer);
    if (!first.agrees_with(other)) [[unlikely]] {
      throw Error(
          ErrorCode::kMismatch,
          fmt::format("ranks called different operations: rank {} called {}, rank {} called {}",
                      rank_at(0),
                      transport::describe(first.descriptor(), operation.sequence),
                      rank_at(peer),
                      transport::describe(other.descriptor(), operation.sequence)));
    }
  }
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
