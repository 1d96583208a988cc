#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/engine/native/memory/peer_memory.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/transport/packet.h"

namespace unisono::engine {
namespace {

using transport::Packet;
using transport::PacketKind;
using transport::PacketMemory;

// Packets of one peer in a row, before the others have their turn.
constexpr int kPacketsPerLook = 32;

// From this size both ranks copy a half, where each can reach the other's memory.
constexpr std::int64_t kMinSharedBytes = 128 << 10;

// Where the announced data lies in its sender's process.
const std::byte* address_of(const Packet& packet) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is never looked at in this process.
  return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(packet.place));
}

bool fits(const Message& message, const Packet& packet) {
  return packet.dtype == message.buffer.dtype && packet.count == message.buffer.count;
}

}  // namespace

Arrival MessageMatcher::receive_at_once(Message& message) {
  if (message.peer == kAnyRank || !posted_.empty()) {
    return Arrival::kInvolved;
  }
  MessagePeer& peer = peers_[static_cast<std::size_t>(message.peer)];
  if (peer.arena == nullptr || peer.is_taking || !peer.unexpected.empty()) {
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
  return_credit(peer, message.buffer.n_bytes());
  return Arrival::kReceived;
}

void MessageMatcher::post_receive(Message& message) {
  if (message.peer != kAnyRank) {
    MessagePeer& peer = peers_[static_cast<std::size_t>(message.peer)];
    if (take_unexpected(peer, message)) {
      return;
    }
    if (peer.channel == nullptr) {
      parts_.packet_streams.open(peer.rank);
    }
  } else {
    for (std::size_t i = 0; i < peers_.size(); ++i) {
      const std::size_t rank = (first_ + i) % peers_.size();
      if (take_unexpected(peers_[rank], message)) {
        first_ = rank + 1;
        return;
      }
    }
  }
  posted_.push_back(&message);
}

// The first of the peer's unexpected messages that has the tag.
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
    begin_announced(peer, message, unexpected.packet);
    return true;
  }
  std::copy(unexpected.data.begin(), unexpected.data.end(), message.bytes().begin());
  peer.n_unexpected_bytes -= unexpected.packet.n_bytes + kUnexpectedOverheadBytes;
  end_part(message);
  return_credit(peer, unexpected.packet.n_bytes);
  return true;
}

bool MessageMatcher::read(MessagePeer& peer) {
  bool has_moved = false;
  for (int n = 0; n < kPacketsPerLook; ++n) {
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
    // What comes next has no receive yet, and would be copied twice.
    if (!ended_.empty() && posted_.empty()) {
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
    case PacketKind::kData: {
      const auto found = peer.receiving.find(packet.number);
      if (found == peer.receiving.end() ||
          found->second->buffer.n_bytes() - found->second->n_moved_bytes < packet.n_bytes) {
        throw corrupt(peer, "sent data that nobody asked for");
      }
      peer.taker = found->second;
      peer.target = peer.taker->bytes().subspan(static_cast<std::size_t>(peer.taker->n_moved_bytes),
                                                packet.n_bytes);
      return;
    }
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
        end_part(*taker);
        return_credit(peer, packet.n_bytes);
        return;
      }
      [[fallthrough]];
    case PacketKind::kAnnounce:
      if (taker != nullptr) {
        begin_announced(peer, *taker, packet);
        return;
      }
      peer.unexpected.push_back(std::move(peer.arriving));
      // A receive may have been posted while it came.
      if (Message* const late = match(peer.rank, packet.tag); late != nullptr) {
        (void)take_unexpected(peer, *late);
      }
      return;
    case PacketKind::kData:
      taker->n_moved_bytes += packet.n_bytes;
      if (taker->n_moved_bytes == taker->buffer.n_bytes()) {
        end_part(take_waiting(peer, peer.receiving, packet.number));
      }
      return;
    case PacketKind::kClear:
      answer_clear(peer, packet);
      return;
    case PacketKind::kTaken:
      end_part(take_waiting(peer, peer.announced, packet.number));
      return;
    case PacketKind::kDelivered:
      end_part(take_waiting(peer, peer.receiving, packet.number));
      return;
    case PacketKind::kCredit:
      if (packet.count > peer.n_uncredited_bytes) {
        throw corrupt(peer, "received more than was sent");
      }
      peer.n_uncredited_bytes -= packet.count;
      return;
    case PacketKind::kAskCredit:
      answer_ask_credit(peer);
      return;
    case PacketKind::kNone:
      return;
  }
}

// The first receive that takes a message, which then is no longer posted.
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
    first_ = static_cast<std::size_t>(source) + 1;
  }
  return message;
}

void MessageMatcher::keep_unexpected(MessagePeer& peer) {
  const Packet& packet = *peer.channel->peek();
  peer.arriving = {.packet = packet, .label = std::string(peer.channel->label()), .data = {}};
  if (packet.kind == PacketKind::kAnnounce) {
    return;  // Its sender keeps the data.
  }
  peer.n_unexpected_bytes += packet.n_bytes + kUnexpectedOverheadBytes;
  if (peer.n_unexpected_bytes > kMostUnexpectedBytes) {
    throw corrupt(peer, "sent more small messages than it may before they are received");
  }
  peer.arriving.data.resize(packet.n_bytes);
  peer.target = peer.arriving.data;
}

// Two ranks that pass segments on have to do so at the same time. A rank that computes meanwhile
// would be late for each.
bool MessageMatcher::reads_announced(const MessagePeer& peer,
                                     const Message& message,
                                     const Packet& packet) const {
  const bool do_both_wait = message.is_attended && packet.memory == PacketMemory::kAttended;
  return peer.process->is_readable() &&
         (parts_.prefers_single_copy || !do_both_wait || is_single_copy_faster());
}

// `message` is the receive of an announced message.
void MessageMatcher::begin_announced(MessagePeer& peer, Message& message, const Packet& packet) {
  message.number = packet.number;
  const std::int64_t n_bytes = message.buffer.n_bytes();
  if (n_bytes == 0) {
    peer.outgoing.push_back({.packet = {.kind = PacketKind::kTaken, .number = packet.number},
                             .message = &message,
                             .ends_message = true});
    flush(peer);
    return;
  }
  const bool is_on_node = peer.arena != nullptr;
  const bool is_in_arena = is_on_node && packet.memory == PacketMemory::kArena;
  if (is_in_arena && (packet.place < 0 || packet.place > peer.arena->n_bytes() - n_bytes)) {
    throw corrupt(peer, "announced data outside its shared memory");
  }
  Copy copy{.peer = &peer,
            .message = &message,
            .to = message.bytes().data(),
            .from = is_in_arena ? peer.arena->data() + packet.place : address_of(packet),
            .is_of_process = !is_in_arena,
            .n_bytes = n_bytes,
            .end = PacketKind::kTaken};
  const auto offset = is_on_node ? arena_.offset_of(message.buffer.data, n_bytes) : std::nullopt;
  const bool is_shared = is_in_arena && offset && n_bytes >= kMinSharedBytes;
  if (is_shared) {
    message.n_parts = 2;
    copy.n_bytes = n_bytes / 2;
  } else if (is_in_arena || (is_on_node && !offset && reads_announced(peer, message, packet))) {
    copies_.push_back(copy);
    return;
  }
  if (!peer.receiving.emplace(packet.number, &message).second) {
    throw corrupt(peer, "announced two messages under one number");
  }
  peer.outgoing.push_back(
      {.packet = {.kind = PacketKind::kClear,
                  .memory = offset ? PacketMemory::kArena : PacketMemory::kPrivate,
                  .number = packet.number,
                  .count = is_shared ? copy.n_bytes : 0,
                  .place = offset.value_or(0)},
       .message = &message});
  flush(peer);
  if (is_shared) {
    copies_.push_back(copy);
  }
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
                          parts_.ranks.describe(peer.rank),
                          describe(sent, parts_.ranks.job_ranks()),
                          parts_.ranks.describe(parts_.topology.rank()),
                          describe(message, parts_.ranks.job_ranks())));
}

Message& MessageMatcher::find_waiting(MessagePeer& peer,
                                      const std::map<std::uint32_t, Message*>& waiting,
                                      std::uint32_t number) const {
  const auto found = waiting.find(number);
  if (found == waiting.end()) {
    throw corrupt(peer, "answered a message that does not wait for it");
  }
  return *found->second;
}

Message& MessageMatcher::take_waiting(MessagePeer& peer,
                                      std::map<std::uint32_t, Message*>& waiting,
                                      std::uint32_t number) {
  Message& message = find_waiting(peer, waiting, number);
  waiting.erase(number);
  return message;
}

Error MessageMatcher::corrupt(const MessagePeer& peer, std::string_view problem) const {
  return {ErrorCode::kCorruptData, fmt::format("{} {}", parts_.ranks.describe(peer.rank), problem)};
}

}  // namespace unisono::engine
