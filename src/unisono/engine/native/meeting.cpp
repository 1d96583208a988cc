#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/engine/native/operation_run.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/tcp/exchange.h"

namespace unisono::engine {

std::int64_t OperationRun::element_bytes() const {
  return static_cast<std::int64_t>(size_of(operation_.descriptor.dtype));
}

void OperationRun::enter() {
  shm::Card& card = board_.my_card(operation_.sequence);
  const shm::Arena& arena = board_.arena(self());
  card.descriptor = operation_.descriptor;
  card.in_offset = arena.offset_of(in_bytes(), operation_.in.n_bytes()).value_or(-1);
  card.out_offset = arena.offset_of(out_bytes(), operation_.out.n_bytes()).value_or(-1);
  board_.enter(operation_.sequence, mode_, patience_);
  check_cards();
}

// All ranks of the node see the same cards, so all come to the same words.
void OperationRun::check_cards() const {
  const transport::Descriptor& first = board_.card(0, operation_.sequence).descriptor;
  for (int peer = 1; peer < n_local(); ++peer) {
    const transport::Descriptor& other = board_.card(peer, operation_.sequence).descriptor;
    if (!(first == other)) [[unlikely]] {
      const auto ranks = topology_.local_ranks();
      throw Error(
          ErrorCode::kMismatch,
          fmt::format("ranks called different operations: rank {} called {}, rank {} called {}",
                      ranks.front(),
                      transport::describe(first, operation_.sequence),
                      ranks[static_cast<std::size_t>(peer)],
                      transport::describe(other, operation_.sequence)));
    }
  }
}

bool OperationRun::is_symmetric_on_all() const {
  for (int peer = 0; peer < n_local(); ++peer) {
    const shm::Card& card = board_.card(peer, operation_.sequence);
    if (card.in_offset < 0 || card.out_offset < 0) {
      return false;
    }
  }
  return true;
}

// An empty message from the lowest rank of each node to those of all others.
void OperationRun::meet_other_nodes() {
  if (topology_.n_nodes() == 1) {
    return;
  }
  if (topology_.local_rank() == 0) {
    std::vector<tcp::Outgoing> sends;
    std::vector<tcp::Incoming> receives;
    for (int node = 0; node < topology_.n_nodes(); ++node) {
      if (node != topology_.node()) {
        const int leader = topology_.ranks_of(node).front();
        sends.push_back({.rank = leader, .data = {}});
        receives.push_back({.rank = leader, .data = {}});
      }
    }
    exchange_.run(sends, receives);
  }
  sync();
}

void OperationRun::barrier() {
  enter();
  meet_other_nodes();
}

}  // namespace unisono::engine
