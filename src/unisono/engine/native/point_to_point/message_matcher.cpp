#include "unisono/engine/native/point_to_point/message_matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/transport/describe.h"

namespace unisono::engine {
namespace {

using transport::Packet;
using transport::PacketKind;

// Packets that are read from a peer before the next peer's turn.
constexpr int kPacketsPerPoll = 32;

// Returns whether the message has the dtype and count of the receive.
bool fits(const Message& message, const Packet& packet) {
  return packet.dtype == message.buffer.dtype && packet.count == message.buffer.count;
}

}  // namespace

void MessageMatcher::post(Message& message) {
  if (message.is_send) {
    transfer_.post_send(message);
  } else {
    post_receive(message);
  }
}

bool MessageMatcher::progress(bool with_network) {
  bool has_moved = with_network && parts_.topology.n_nodes() > 1 && progress_between_nodes();
  for (MessagePeer* const peer : transfer_.on_node()) {
    has_moved = transfer_.flush(*peer) || has_moved;
    has_moved = read(*peer) || has_moved;
  }
  return transfer_.move_copies() || has_moved;
}

bool MessageMatcher::progress_between_nodes() {
  bool has_moved = transfer_.add_connections();
  for (MessagePeer* const peer : transfer_.connected()) {
    has_moved = transfer_.flush(*peer) || has_moved;
    has_moved = read(*peer) || has_moved;
  }
  return has_moved;
}

bool MessageMatcher::has_left(int rank) const {
  const tcp::PacketStream* const stream = parts_.packet_streams.find(rank);
  return stream != nullptr && stream->has_left();
}

bool MessageMatcher::has_unread(int rank) const {
  const MessagePeer& peer = transfer_.peer(rank);
  return peer.is_on_node() && peer.channel->peek() != nullptr;
}

bool MessageMatcher::is_unreachable(int rank) const {
  return !transfer_.peer(rank).is_on_node() && parts_.packet_streams.is_unreachable(rank);
}

std::vector<int> MessageMatcher::find_unexpected_tags(int rank) const {
  std::set<int> tags;
  for (int from = 0; from < parts_.topology.world_size(); ++from) {
    if (rank == from || rank == kAnyRank) {
      for (const UnexpectedMessage& unexpected : transfer_.peer(from).unexpected) {
        tags.insert(unexpected.packet.tag);
      }
    }
  }
  return {tags.begin(), tags.end()};
}

std::vector<Message*> MessageMatcher::cancel_receives() {
  std::vector<Message*> receives(posted_.begin(), posted_.end());
  posted_.clear();
  return receives;
}

void MessageMatcher::abandon() {
  posted_.clear();
  transfer_.abandon();
}

Arrival MessageMatcher::receive_at_once(Message& message) {
  if (message.peer == kAnyRank || !posted_.empty()) {
    return Arrival::kInvolved;
  }
  MessagePeer& peer = transfer_.peer(message.peer);
  if (!peer.is_on_node() || peer.is_taking || !peer.unexpected.empty()) {
    return Arrival::kInvolved;
  }
  const Packet* const packet = peer.channel->peek();
  if (packet == nullptr) {
    return Arrival::kNotYet;
  }
  if (packet->kind != PacketKind::kMessage || packet->tag != message.tag ||
      !fits(message, *packet)) {
    return Arrival::kInvolved;
  }
  (void)peer.channel->take(message.bytes());
  ++peer.n_arrived;
  message.source = peer.rank;
  message.has_ended = true;
  transfer_.return_credit(peer, message.buffer.n_bytes());
  return Arrival::kReceived;
}

void MessageMatcher::post_receive(Message& message) {
  if (message.peer != kAnyRank) {
    MessagePeer& peer = transfer_.peer(message.peer);
    if (take_unexpected(peer, message)) {
      return;
    }
    transfer_.connect(peer);
  } else {
    const int n_peers = parts_.topology.world_size();
    for (int i = 0; i < n_peers; ++i) {
      const int rank = (first_ + i) % n_peers;
      if (take_unexpected(transfer_.peer(rank), message)) {
        first_ = rank + 1;
        return;
      }
    }
  }
  posted_.push_back(&message);
}

// Takes the peer's first unexpected message with the tag. Returns whether there was a message.
bool MessageMatcher::take_unexpected(MessagePeer& peer, Message& message) {
  const auto found =
      std::find_if(peer.unexpected.begin(), peer.unexpected.end(), [&](const auto& unexpected) {
        return unexpected.packet.tag == message.tag;
      });
  if (found == peer.unexpected.end()) {
    return false;
  }
  const UnexpectedMessage unexpected = std::move(*found);
  peer.unexpected.erase(found);
  message.source = peer.rank;
  check_shape(peer, message, unexpected.packet, unexpected.label);
  if (unexpected.packet.kind == PacketKind::kAnnounce) {
    transfer_.receive_announced(peer, message, unexpected.packet);
    return true;
  }
  std::copy(unexpected.data.begin(), unexpected.data.end(), message.bytes().begin());
  peer.n_unexpected_bytes -= unexpected.packet.n_bytes + kUnexpectedOverheadBytes;
  transfer_.end_part(message);
  transfer_.return_credit(peer, unexpected.packet.n_bytes);
  return true;
}

bool MessageMatcher::read(MessagePeer& peer) {
  bool has_moved = false;
  for (int n = 0; n < kPacketsPerPoll; ++n) {
    const Packet* const packet = peer.channel->peek();
    if (packet == nullptr) {
      return has_moved;
    }
    if (!peer.is_taking) {
      choose_target(peer, *packet);
      peer.is_taking = true;
    }
    const Packet taken = *packet;
    if (!peer.channel->take(peer.target)) {
      return has_moved;
    }
    has_moved = true;
    peer.is_taking = false;
    finish_arrival(peer, taken);
    // The next message has no receive yet, and would be copied twice.
    if (!transfer_.ended().empty() && posted_.empty()) {
      return true;
    }
  }
  return has_moved;
}

void MessageMatcher::choose_target(MessagePeer& peer, const Packet& packet) {
  peer.taker = nullptr;
  peer.target = {};
  switch (packet.kind) {
    case PacketKind::kMessage:
    case PacketKind::kAnnounce:
      peer.taker = match(peer.rank, packet.tag);
      if (peer.taker == nullptr) {
        keep_unexpected(peer);
      } else {
        check_shape(peer, *peer.taker, packet, peer.channel->label());
        peer.target = peer.taker->bytes().first(packet.n_bytes);
      }
      return;
    case PacketKind::kData:
      peer.taker = &transfer_.find_receiver(peer, packet);
      peer.target = peer.taker->bytes().subspan(static_cast<std::size_t>(peer.taker->n_moved_bytes),
                                                packet.n_bytes);
      return;
    default:
      return;
  }
}

void MessageMatcher::finish_arrival(MessagePeer& peer, const Packet& packet) {
  Message* const taker = std::exchange(peer.taker, nullptr);
  const bool is_first = packet.kind == PacketKind::kMessage || packet.kind == PacketKind::kAnnounce;
  peer.n_arrived += is_first ? 1 : 0;
  switch (packet.kind) {
    case PacketKind::kMessage:
      if (taker != nullptr) {
        transfer_.end_part(*taker);
        transfer_.return_credit(peer, packet.n_bytes);
        return;
      }
      [[fallthrough]];
    case PacketKind::kAnnounce:
      if (taker != nullptr) {
        transfer_.receive_announced(peer, *taker, packet);
        return;
      }
      peer.unexpected.push_back(std::move(peer.arriving));
      // A receive may have been posted while the message arrived.
      if (Message* const late = match(peer.rank, packet.tag); late != nullptr) {
        (void)take_unexpected(peer, *late);
      }
      return;
    case PacketKind::kData:
      transfer_.finish_segment(peer, *taker, packet);
      return;
    default:
      transfer_.process(peer, packet);
      return;
  }
}

// Removes and returns the first posted receive that accepts the message; null if no receive does.
Message* MessageMatcher::match(int source, int tag) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const Message* receive) {
    return receive->tag == tag && (receive->peer == source || receive->peer == kAnyRank);
  });
  if (found == posted_.end()) {
    return nullptr;
  }
  Message* const message = *found;
  posted_.erase(found);
  message->source = source;
  if (message->peer == kAnyRank) {
    first_ = source + 1;
  }
  return message;
}

void MessageMatcher::keep_unexpected(MessagePeer& peer) {
  const Packet& packet = *peer.channel->peek();
  peer.arriving = {.packet = packet, .label = std::string(peer.channel->label()), .data = {}};
  if (packet.kind == PacketKind::kAnnounce) {
    return;  // The sender keeps the data.
  }
  peer.n_unexpected_bytes += packet.n_bytes + kUnexpectedOverheadBytes;
  if (peer.n_unexpected_bytes > kMostUnexpectedBytes) {
    throw transfer_.corrupt(peer, "sent more small messages than it may before they are received");
  }
  peer.arriving.data.resize(packet.n_bytes);
  peer.target = peer.arriving.data;
}

void MessageMatcher::check_shape(const MessagePeer& peer,
                                 const Message& message,
                                 const Packet& packet,
                                 std::string_view label) const {
  if (fits(message, packet)) [[likely]] {
    return;
  }
  Message sent;
  sent.is_send = true;
  sent.peer = parts_.topology.rank();
  sent.tag = packet.tag;
  sent.buffer.count = packet.count;
  sent.buffer.dtype = packet.dtype;
  sent.label = label;
  throw Error(ErrorCode::kMismatch,
              fmt::format("a message does not fit its receive: {} called {}, {} called {}",
                          transport::describe(parts_.ranks.member(peer.rank)),
                          describe(sent, parts_.job_ranks),
                          transport::describe(parts_.ranks.member(parts_.topology.rank())),
                          describe(message, parts_.job_ranks)));
}

}  // namespace unisono::engine
