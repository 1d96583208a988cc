#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/collective/all_reduce_plan.h"
#include "unisono/engine/native/operation_run.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/tcp/exchange.h"

namespace unisono::engine {

using collective::ElementRange;

void OperationRun::broadcast() {
  const int root = operation_.descriptor.root;
  const int root_node = topology_.node_of(root);
  const bool is_root = root == topology_.rank();
  const bool is_small = topology_.n_nodes() == 1 && operation_.out.n_bytes() <= shm::kSlotBytes;
  if (is_small && is_root) {
    std::copy_n(in_bytes(), operation_.out.n_bytes(), board_.slot(self(), operation_.sequence));
  }
  enter();
  if (topology_.n_nodes() > 1) {
    broadcast_between_nodes(root_node);
    return;
  }
  const int root_local_rank = topology_.local_rank_of(root);
  if (is_small) {
    broadcast_small(root_local_rank);
  } else if (board_.card(root_local_rank, operation_.sequence).in_offset >= 0) {
    broadcast_symmetric(root_local_rank);
  } else {
    broadcast_pipelined(root_local_rank);
  }
}

void OperationRun::broadcast_small(int root_local_rank) {
  if (self() != root_local_rank) {
    std::copy_n(
        board_.slot(root_local_rank, operation_.sequence), operation_.out.n_bytes(), out_bytes());
  }
}

// The root's memory is read where it lies; it must stay until all have read it.
void OperationRun::broadcast_symmetric(int root_local_rank) {
  if (self() != root_local_rank) {
    const shm::Card& card = board_.card(root_local_rank, operation_.sequence);
    std::copy_n(board_.at(root_local_rank, card.in_offset), operation_.out.n_bytes(), out_bytes());
  }
  sync();
}

// In step k the root puts segment k into its arena while the others take segment k - 1 out.
void OperationRun::broadcast_pipelined(int root_local_rank) {
  const std::int64_t n_bytes = operation_.out.n_bytes();
  const std::int64_t n_segments = (n_bytes + shm::kSegmentBytes - 1) / shm::kSegmentBytes;
  const bool is_root = self() == root_local_rank;
  for (std::int64_t step = 0; step < n_segments + 1; ++step) {
    const std::int64_t index = is_root ? step : step - 1;
    if (index >= 0 && index < n_segments) {
      const std::int64_t begin = index * shm::kSegmentBytes;
      const std::int64_t size = std::min(shm::kSegmentBytes, n_bytes - begin);
      std::byte* const staging = board_.staging_in(root_local_rank, index);
      if (is_root) {
        std::copy_n(in_bytes() + begin, size, staging);
      } else {
        std::copy_n(staging, size, out_bytes() + begin);
      }
    }
    sync();
  }
}

// The buffer passes in segments. On the root's node every rank sends its chunks of the segment to
// its deputies on the other nodes; those write them to all ranks of their node.
void OperationRun::broadcast_between_nodes(int source_node) {
  const bool is_symmetric = is_symmetric_on_all();
  const bool is_source = topology_.node() == source_node;
  const int root_index = topology_.local_rank_of(operation_.descriptor.root);
  const bool is_root = is_source && self() == root_index;
  const std::int64_t segment = shm::kStagingBytes / element_bytes();
  const std::int64_t count = operation_.descriptor.count;
  std::int64_t begin = 0;
  do {
    const ElementRange range{.begin = begin, .end = std::min(begin + segment, count)};
    const std::int64_t offset = range.begin * element_bytes();
    const std::int64_t n_bytes = range.count() * element_bytes();
    if (is_root) {
      std::copy_n(in_bytes() + offset, n_bytes, board_.staging_in(self(), 0));
    }
    sync();
    if (is_source) {
      const std::byte* const source = board_.staging_in(root_index, 0);
      send_segment(range, source);
      if (!is_root) {
        std::copy_n(source, n_bytes, out_bytes() + offset);
      }
    } else {
      receive_segment(range, source_node, is_symmetric);
    }
    sync();
    if (!is_source && !is_symmetric) {
      take_peers_chunks(range);
    }
    begin += segment;
  } while (begin < count);
}

void OperationRun::send_segment(ElementRange range, const std::byte* source) {
  std::vector<tcp::Outgoing> sends;
  for (int chunk = 0; chunk < topology_.world_size(); ++chunk) {
    if (collective::deputy_for(topology_, topology_.node(), chunk) != topology_.rank()) {
      continue;
    }
    const ElementRange elements = range_of(chunk, topology_.world_size(), range);
    for (int node = 0; node < topology_.n_nodes(); ++node) {
      if (node != topology_.node()) {
        sends.push_back(
            {.rank = collective::deputy_for(topology_, node, chunk),
             .data = std::span(source + elements.begin * element_bytes(),
                               static_cast<std::size_t>(elements.count() * element_bytes()))});
      }
    }
  }
  // Who only sends would not learn that its peers called something else.
  std::vector<tcp::Incoming> receipts;
  for (const tcp::Outgoing& sent : sends) {
    receipts.push_back({.rank = sent.rank, .data = {}});
  }
  exchange_.run(sends, receipts);
}

void OperationRun::receive_segment(ElementRange range, int source_node, bool is_symmetric) {
  std::byte* const mine = out_bytes() + range.begin * element_bytes();
  std::vector<tcp::Incoming> receives;
  for (int chunk = 0; chunk < topology_.world_size(); ++chunk) {
    if (collective::deputy_for(topology_, topology_.node(), chunk) == topology_.rank()) {
      const ElementRange elements = range_of(chunk, topology_.world_size(), range);
      receives.push_back(
          {.rank = collective::deputy_for(topology_, source_node, chunk),
           .data = std::span(mine + elements.begin * element_bytes(),
                             static_cast<std::size_t>(elements.count() * element_bytes()))});
    }
  }
  std::vector<tcp::Outgoing> receipts;
  for (const tcp::Incoming& received : receives) {
    receipts.push_back({.rank = received.rank, .data = {}});
  }
  exchange_.run(receipts, receives);
  for (const tcp::Incoming& received : receives) {
    const std::ptrdiff_t offset = received.data.data() - mine;
    for (int peer = 0; peer < n_local(); ++peer) {
      if (peer == self()) {
        continue;
      }
      const shm::Card& card = board_.card(peer, operation_.sequence);
      std::byte* const out = is_symmetric
                                 ? board_.at(peer, card.out_offset + range.begin * element_bytes())
                                 : board_.staging_out(peer, 0);
      std::copy(received.data.begin(), received.data.end(), out + offset);
    }
  }
}

void OperationRun::take_peers_chunks(ElementRange range) const {
  const std::byte* const staging = board_.staging_out(self(), 0);
  std::byte* const out = out_bytes() + range.begin * element_bytes();
  for (int chunk = 0; chunk < topology_.world_size(); ++chunk) {
    if (collective::deputy_for(topology_, topology_.node(), chunk) != topology_.rank()) {
      const ElementRange elements = range_of(chunk, topology_.world_size(), range);
      const std::int64_t offset = elements.begin * element_bytes();
      std::copy_n(staging + offset, elements.count() * element_bytes(), out + offset);
    }
  }
}

}  // namespace unisono::engine
