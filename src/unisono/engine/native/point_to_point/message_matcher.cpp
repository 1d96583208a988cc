#include "unisono/engine/native/point_to_point/message_matcher.h"

#include <fmt/format.h>

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/tcp/packet_stream.h"

namespace unisono::engine {

std::string describe(const Message& message, transport::JobRanks job_ranks) {
  const std::string peer =
      message.peer == kAnyRank
          ? "any rank"
          : fmt::format("rank {}", transport::describe_rank(message.peer, job_ranks));
  return fmt::format("{} ({}[{}], {} {}, tag {}){}{}",
                     message.is_send ? "send" : "recv",
                     to_string(message.buffer.dtype),
                     message.buffer.count,
                     message.is_send ? "to" : "from",
                     peer,
                     message.tag,
                     message.label.empty() ? "" : " of ",
                     message.label);
}

MessageMatcher::MessageMatcher(MessageParts parts)
    : parts_(parts), arena_(parts.endpoint.arena(parts.topology.local_rank())) {
  const collective::Topology& topology = parts_.topology;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    peers_.push_back({.rank = rank});
  }
  for (const int rank : topology.local_ranks()) {
    const int local_rank = topology.local_rank_of(rank);
    MessagePeer& peer = peers_[static_cast<std::size_t>(rank)];
    rings_.push_back(parts_.endpoint.channel(local_rank));
    peer.channel = rings_.back().get();
    peer.arena = &parts_.endpoint.arena(local_rank);
    peer.process = std::make_unique<shm::ProcessMemory>(parts_.endpoint.process_memory(local_rank));
    on_node_.push_back(&peer);
  }
}

void MessageMatcher::post(Message& message) {
  if (message.is_send) {
    post_send(message);
  } else {
    post_receive(message);
  }
}

bool MessageMatcher::progress(bool with_network) {
  bool has_moved = with_network && parts_.topology.n_nodes() > 1 && progress_between_nodes();
  for (MessagePeer* const peer : on_node_) {
    has_moved = flush(*peer) || has_moved;
    has_moved = read(*peer) || has_moved;
  }
  return move_copies() || has_moved;
}

bool MessageMatcher::progress_between_nodes() {
  bool has_moved = false;
  for (const int rank : parts_.packet_streams.progress()) {
    MessagePeer& peer = peers_[static_cast<std::size_t>(rank)];
    peer.channel = parts_.packet_streams.find(rank);
    connected_.push_back(&peer);
    has_moved = true;
  }
  for (MessagePeer* const peer : connected_) {
    has_moved = flush(*peer) || has_moved;
    has_moved = read(*peer) || has_moved;
  }
  return has_moved;
}

bool MessageMatcher::has_left(int rank) const {
  const tcp::PacketStream* const stream = parts_.packet_streams.find(rank);
  return stream != nullptr && stream->has_left();
}

bool MessageMatcher::has_unread(int rank) const {
  const MessagePeer& peer = peers_[static_cast<std::size_t>(rank)];
  return parts_.topology.node_of(rank) == parts_.topology.node() && peer.channel != nullptr &&
         peer.channel->peek() != nullptr;
}

bool MessageMatcher::is_unreachable(int rank) const {
  return parts_.topology.node_of(rank) != parts_.topology.node() &&
         parts_.packet_streams.is_unreachable(rank);
}

std::vector<int> MessageMatcher::find_unexpected_tags(int rank) const {
  std::set<int> tags;
  for (const MessagePeer& peer : peers_) {
    if (rank == peer.rank || rank == kAnyRank) {
      for (const UnexpectedMessage& unexpected : peer.unexpected) {
        tags.insert(unexpected.packet.tag);
      }
    }
  }
  return {tags.begin(), tags.end()};
}

void MessageMatcher::end_part(Message& message) {
  if (--message.n_parts == 0) {
    message.has_ended = true;
    ended_.push_back(&message);
  }
}

std::vector<Message*> MessageMatcher::give_up_receives() {
  std::vector<Message*> receives(posted_.begin(), posted_.end());
  posted_.clear();
  return receives;
}

void MessageMatcher::abandon() {
  parts_.endpoint.withdraw();
  for (MessagePeer& peer : peers_) {
    peer.outgoing.clear();
    peer.announced.clear();
    peer.receiving.clear();
    peer.unexpected.clear();
    peer.taker = nullptr;
  }
  posted_.clear();
  copies_.clear();
  ended_.clear();
}

}  // namespace unisono::engine
