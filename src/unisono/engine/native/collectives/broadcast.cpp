#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "unisono/collective/reduce_plan.h"
#include "unisono/engine/native/collectives/collectives.h"
#include "unisono/engine/native/collectives/local_exchange.h"
#include "unisono/engine/native/operation_context.h"
#include "unisono/transport/remote/exchange.h"
#include "unisono/transport/shm/control_block.h"

namespace unisono::engine {
namespace {

using collective::ElementRange;

// The node's root makes a single offer to all ranks.
void broadcast_in_node(OperationContext& context, int root_local_rank) {
  const bool is_root = context.self() == root_local_rank;
  const std::span buffer(context.out_bytes(),
                         static_cast<std::size_t>(context.operation.out.n_bytes()));
  LocalTransfers transfers(context.memory, context.n_local());
  transfers.is_one_sided = true;
  if (is_root) {
    transfers.offers.emplace_back(context.memory).push_back(buffer);
  }
  for (int peer = 0; peer < context.n_local(); ++peer) {
    transfers.offer_to.push_back(is_root ? 0 : -1);
    LocalTransfers::Sink& from = transfers.from.emplace_back(context.memory);
    if (peer == root_local_rank) {
      from.push_back(buffer);
    }
  }
  LocalExchange local(context, std::move(transfers));
  local.show();
  context.enter();
  local.take();
}

// A broadcast between nodes, segment by segment. On the root's node every rank sends chunks of the
// segment to deputies on the other nodes; a deputy writes the chunks to all ranks of the deputy's
// node.
class BroadcastBetweenNodes {
 public:
  explicit BroadcastBetweenNodes(OperationContext& context)
      : context_(context),
        topology_(context.topology),
        root_node_(topology_.node_of(context.operation.descriptor.root)),
        is_symmetric_(is_symmetric_on_all()) {}

  void run();

 private:
  [[nodiscard]] bool is_symmetric_on_all() const;
  void send_segment(ElementRange range, const std::byte* source);
  void receive_segment(ElementRange range);
  void take_peers_chunks(ElementRange range) const;
  [[nodiscard]] ElementRange bytes_of_chunk(int chunk, ElementRange segment) const;

  OperationContext& context_;
  const collective::Topology& topology_;
  int root_node_;
  bool is_symmetric_;
};

bool BroadcastBetweenNodes::is_symmetric_on_all() const {
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    if (context_.header(peer).placement.out_offset < 0) {
      return false;
    }
  }
  return true;
}

void BroadcastBetweenNodes::run() {
  const bool is_source = topology_.node() == root_node_;
  const int root_index = topology_.local_rank_of(context_.operation.descriptor.root);
  const bool is_root = is_source && context_.self() == root_index;
  const std::int64_t n_bytes = context_.operation.out.n_bytes();
  std::int64_t begin = 0;
  // An empty buffer is exchanged too, in order to detect a rank with another count.
  do {
    const ElementRange range{.begin = begin, .end = std::min(begin + shm::kStagingBytes, n_bytes)};
    if (is_root) {
      std::copy_n(context_.in_bytes() + begin,
                  range.count(),
                  context_.control_block.staging_in(context_.self(), 0));
    }
    context_.sync();
    if (is_source) {
      const std::byte* const source = context_.control_block.staging_in(root_index, 0);
      send_segment(range, source);
      if (!is_root) {
        std::copy_n(source, range.count(), context_.out_bytes() + begin);
      }
    } else {
      receive_segment(range);
    }
    context_.sync();
    if (!is_source && !is_symmetric_) {
      take_peers_chunks(range);
    }
    begin += shm::kStagingBytes;
  } while (begin < n_bytes);
}

// Byte positions count from the begin of the segment.
ElementRange BroadcastBetweenNodes::bytes_of_chunk(int chunk, ElementRange segment) const {
  return collective::chunk_of({.begin = 0, .end = segment.count()},
                              topology_.world_size(),
                              chunk,
                              static_cast<std::int64_t>(shm::kCacheLine));
}

void BroadcastBetweenNodes::send_segment(ElementRange range, const std::byte* source) {
  std::vector<tcp::Outgoing> sends;
  for (int chunk = 0; chunk < topology_.world_size(); ++chunk) {
    if (collective::deputy_for(topology_, topology_.node(), chunk) != topology_.rank()) {
      continue;
    }
    const ElementRange bytes = bytes_of_chunk(chunk, range);
    for (int node = 0; node < topology_.n_nodes(); ++node) {
      if (node != topology_.node()) {
        sends.push_back(
            {.rank = collective::deputy_for(topology_, node, chunk),
             .data = std::span(source + bytes.begin, static_cast<std::size_t>(bytes.count()))});
      }
    }
  }
  // Empty receipts in the other direction: a rank that only sends would not detect a different call
  // of its peer.
  std::vector<tcp::Incoming> receipts;
  for (const tcp::Outgoing& sent : sends) {
    receipts.push_back({.rank = sent.rank, .data = {}});
  }
  context_.exchange.run(sends, receipts);
}

void BroadcastBetweenNodes::receive_segment(ElementRange range) {
  std::byte* const mine = context_.out_bytes() + range.begin;
  std::vector<tcp::Incoming> receives;
  std::vector<tcp::Outgoing> receipts;
  for (int chunk = 0; chunk < topology_.world_size(); ++chunk) {
    if (collective::deputy_for(topology_, topology_.node(), chunk) == topology_.rank()) {
      const ElementRange bytes = bytes_of_chunk(chunk, range);
      const int sender = collective::deputy_for(topology_, root_node_, chunk);
      receives.push_back(
          {.rank = sender,
           .data = std::span(mine + bytes.begin, static_cast<std::size_t>(bytes.count()))});
      receipts.push_back({.rank = sender, .data = {}});
    }
  }
  context_.exchange.run(receipts, receives);
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    if (peer == context_.self()) {
      continue;
    }
    std::byte* const out = is_symmetric_
                               ? context_.control_block.at(
                                     peer, context_.header(peer).placement.out_offset + range.begin)
                               : context_.control_block.staging_out(peer, 0);
    for (const tcp::Incoming& received : receives) {
      std::copy(received.data.begin(), received.data.end(), out + (received.data.data() - mine));
    }
  }
}

void BroadcastBetweenNodes::take_peers_chunks(ElementRange range) const {
  const std::byte* const staging = context_.control_block.staging_out(context_.self(), 0);
  std::byte* const out = context_.out_bytes() + range.begin;
  for (int chunk = 0; chunk < topology_.world_size(); ++chunk) {
    if (collective::deputy_for(topology_, topology_.node(), chunk) != topology_.rank()) {
      const ElementRange bytes = bytes_of_chunk(chunk, range);
      std::copy_n(staging + bytes.begin, bytes.count(), out + bytes.begin);
    }
  }
}

}  // namespace

void broadcast(OperationContext& context) {
  if (context.topology.n_nodes() == 1) {
    broadcast_in_node(context, context.topology.local_rank_of(context.operation.descriptor.root));
    return;
  }
  context.enter_with_buffers();
  BroadcastBetweenNodes(context).run();
}

}  // namespace unisono::engine
