#include "unisono/engine/native/messages.h"

#include <cstddef>
#include <memory>
#include <set>
#include <vector>

#include "unisono/engine/native/message.h"
#include "unisono/engine/native/message_peer.h"
#include "unisono/transport/packet_channel.h"
#include "unisono/transport/tcp/packet_stream.h"

namespace unisono::engine {

Messages::Messages(MessageParts parts)
    : parts_(parts), arena_(parts.mailbox.arena(parts.topology.local_rank())) {
  const collective::Topology& topology = parts_.topology;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    peers_.push_back({.rank = rank});
  }
  for (const int rank : topology.local_ranks()) {
    const int local_rank = topology.local_rank_of(rank);
    MessagePeer& peer = peers_[static_cast<std::size_t>(rank)];
    lanes_.push_back(parts_.mailbox.channel(local_rank));
    peer.channel = lanes_.back().get();
    peer.arena = &parts_.mailbox.arena(local_rank);
    peer.process = std::make_unique<shm::ProcessMemory>(parts_.mailbox.process_memory(local_rank));
    on_node_.push_back(&peer);
  }
}

void Messages::post(Message& message) {
  if (message.is_send) {
    post_send(message);
  } else {
    post_receive(message);
  }
}

bool Messages::progress(bool with_network) {
  bool has_moved = with_network && parts_.topology.n_nodes() > 1 && progress_between_nodes();
  for (MessagePeer* const peer : on_node_) {
    has_moved = flush(*peer) || has_moved;
    has_moved = read(*peer) || has_moved;
  }
  return move_copies() || has_moved;
}

bool Messages::progress_between_nodes() {
  bool has_moved = false;
  for (const int rank : parts_.mesh.progress()) {
    connect(rank);
    has_moved = true;
  }
  for (MessagePeer* const peer : connected_) {
    has_moved = flush(*peer) || has_moved;
    has_moved = read(*peer) || has_moved;
  }
  return has_moved;
}

void Messages::connect(int rank) {
  MessagePeer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.channel = parts_.mesh.find(rank);
  connected_.push_back(&peer);
}

bool Messages::has_left(int rank) const {
  const tcp::PacketStream* const stream = parts_.mesh.find(rank);
  return stream != nullptr && stream->has_left();
}

std::vector<int> Messages::find_parked_tags(int rank) const {
  std::set<int> tags;
  for (const MessagePeer& peer : peers_) {
    if (rank == peer.rank || rank == kAnyRank) {
      for (const ParkedMessage& parked : peer.parked) {
        tags.insert(parked.packet.tag);
      }
    }
  }
  return {tags.begin(), tags.end()};
}

void Messages::end_part(Message& message) {
  if (--message.n_parts == 0) {
    message.has_ended = true;
    ended_.push_back(&message);
  }
}

std::vector<Message*> Messages::give_up_receives() {
  std::vector<Message*> receives(posted_.begin(), posted_.end());
  posted_.clear();
  return receives;
}

void Messages::abandon() {
  parts_.mailbox.withdraw();
  for (MessagePeer& peer : peers_) {
    peer.outgoing.clear();
    peer.announced.clear();
    peer.receiving.clear();
    peer.parked.clear();
    peer.taker = nullptr;
  }
  posted_.clear();
  copies_.clear();
  ended_.clear();
}

}  // namespace unisono::engine
