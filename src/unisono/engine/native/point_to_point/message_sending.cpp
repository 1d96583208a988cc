#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::engine {
namespace {

using transport::Packet;
using transport::PacketKind;
using transport::PacketMemory;

// Up to this size two copies and no answer are faster than one copy and an answer.
constexpr std::int64_t kMaxSmallBytesOnNode = 16 << 10;

constexpr std::int64_t kSegmentBytesOnNode = 64 << 10;
constexpr std::int64_t kSegmentBytesBetweenNodes = 512 << 10;

// What one look moves of a copy, so that other messages have their turn.
constexpr std::int64_t kCopyStepBytes = 1 << 20;

bool is_on_node(const MessagePeer& peer) {
  return peer.arena != nullptr;
}

// So that it goes with its data, and the peer keeps it until its receive is there.
bool is_small(const MessagePeer& peer, std::int64_t n_bytes) {
  const std::int64_t limit = is_on_node(peer) ? kMaxSmallBytesOnNode : transport::kMaxSmallBytes;
  return n_bytes <= limit &&
         peer.n_uncredited_bytes + n_bytes + kUnexpectedOverheadBytes <= kMostUnexpectedBytes;
}

}  // namespace

// False where it is not small, or other packets are before it, or not all of it went at once.
bool MessageMatcher::send_small(MessagePeer& peer,
                                int tag,
                                const Buffer& buffer,
                                std::string_view label) {
  const std::int64_t n_bytes = buffer.n_bytes();
  if (!peer.outgoing.empty() || peer.channel == nullptr || !is_small(peer, n_bytes) ||
      !peer.channel->send(
          {.kind = PacketKind::kMessage,
           .dtype = buffer.dtype,
           .tag = tag,
           .n_bytes = static_cast<std::uint32_t>(n_bytes),
           .count = buffer.count},
          label,
          {static_cast<const std::byte*>(buffer.data), static_cast<std::size_t>(n_bytes)})) {
    return false;
  }
  peer.n_uncredited_bytes += n_bytes + kUnexpectedOverheadBytes;
  ++peer.n_sent;
  return true;
}

bool MessageMatcher::send_at_once(int to, int tag, const Buffer& buffer, std::string_view label) {
  MessagePeer& peer = peers_[static_cast<std::size_t>(to)];
  return is_on_node(peer) && send_small(peer, tag, buffer, label);
}

void MessageMatcher::post_send(Message& message) {
  MessagePeer& peer = peers_[static_cast<std::size_t>(message.peer)];
  if (send_small(peer, message.tag, message.buffer, message.label)) {
    end_part(message);
    return;
  }
  ++peer.n_sent;
  const std::int64_t n_bytes = message.buffer.n_bytes();
  Packet packet{.dtype = message.buffer.dtype, .tag = message.tag, .count = message.buffer.count};
  if (is_small(peer, n_bytes)) {
    packet.kind = PacketKind::kMessage;
    packet.n_bytes = static_cast<std::uint32_t>(n_bytes);
    peer.n_uncredited_bytes += n_bytes + kUnexpectedOverheadBytes;
    peer.outgoing.push_back(
        {.packet = packet, .payload = message.bytes(), .message = &message, .ends_message = true});
  } else {
    const std::optional<std::int64_t> offset = arena_.offset_of(message.buffer.data, n_bytes);
    packet.kind = PacketKind::kAnnounce;
    packet.memory = offset                ? PacketMemory::kArena
                    : message.is_attended ? PacketMemory::kAttended
                                          : PacketMemory::kPrivate;
    packet.place = offset.value_or(
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(message.buffer.data)));
    packet.number = message.number = peer.n_announced++;
    peer.announced[message.number] = &message;
    peer.outgoing.push_back({.packet = packet, .message = &message});
  }
  if (peer.channel == nullptr) {
    parts_.packet_streams.open(peer.rank);
  }
  flush(peer);
}

bool MessageMatcher::flush(MessagePeer& peer) {
  bool has_moved = false;
  while (!peer.outgoing.empty() && peer.channel != nullptr) {
    const OutgoingPacket& next = peer.outgoing.front();
    const bool has_label =
        next.packet.kind == PacketKind::kMessage || next.packet.kind == PacketKind::kAnnounce;
    if (!peer.channel->send(
            next.packet, has_label ? std::string_view(next.message->label) : "", next.payload)) {
      return has_moved;
    }
    has_moved = true;
    const OutgoingPacket sent = next;
    peer.outgoing.pop_front();
    const bool is_segment = sent.packet.kind == PacketKind::kData;
    if (is_segment) {
      sent.message->n_moved_bytes += sent.packet.n_bytes;
    }
    if (is_segment && sent.message->n_moved_bytes < sent.message->buffer.n_bytes()) {
      queue_segment(peer, *sent.message);
    } else if (is_segment || sent.ends_message) {
      end_part(*sent.message);
    }
  }
  return has_moved;
}

// One at a time, behind what else waits: so a long message does not hold up the others.
void MessageMatcher::queue_segment(MessagePeer& peer, Message& message) {
  const std::int64_t limit = is_on_node(peer) ? kSegmentBytesOnNode : kSegmentBytesBetweenNodes;
  const auto begin = static_cast<std::size_t>(message.n_moved_bytes);
  const auto n_bytes =
      static_cast<std::size_t>(std::min(limit, message.buffer.n_bytes() - message.n_moved_bytes));
  peer.outgoing.push_back({.packet = {.kind = PacketKind::kData,
                                      .number = message.number,
                                      .n_bytes = static_cast<std::uint32_t>(n_bytes)},
                           .payload = message.bytes().subspan(begin, n_bytes),
                           .message = &message});
}

// The receiver of an announced message has memory for it, and copies the first `count` bytes of it
// itself.
void MessageMatcher::answer_clear(MessagePeer& peer, const Packet& packet) {
  const bool is_shared = packet.count > 0;
  Message& message = is_shared ? find_waiting(peer, peer.announced, packet.number)
                               : take_waiting(peer, peer.announced, packet.number);
  if (packet.memory == PacketMemory::kPrivate) {
    if (is_shared) {
      throw corrupt(peer, "asked for a part of a message in segments");
    }
    queue_segment(peer, message);
    return;
  }
  const std::int64_t n_bytes = message.buffer.n_bytes();
  if (std::exchange(message.is_cleared, true)) {
    throw corrupt(peer, "asked twice for one message");
  }
  if (!is_on_node(peer) || packet.place < 0 || packet.place > peer.arena->n_bytes() - n_bytes ||
      packet.count > n_bytes) {
    throw corrupt(peer, "asked for data at a place outside its shared memory");
  }
  message.n_parts = is_shared ? 2 : 1;
  copies_.push_back({.peer = &peer,
                     .message = &message,
                     .to = peer.arena->data() + packet.place + packet.count,
                     .from = message.bytes().data() + packet.count,
                     .is_of_process = false,
                     .n_bytes = n_bytes - packet.count,
                     .end = PacketKind::kDelivered});
}

bool MessageMatcher::move_copies() {
  bool has_moved = false;
  for (std::size_t n = copies_.size(); n > 0; --n) {
    Copy copy = copies_.front();
    copies_.pop_front();
    has_moved = true;
    const std::int64_t n_bytes = std::min(kCopyStepBytes, copy.n_bytes);
    copy_step(copy, static_cast<std::size_t>(n_bytes));
    copy.to += n_bytes;
    copy.from += n_bytes;
    copy.n_bytes -= n_bytes;
    if (copy.n_bytes > 0) {
      copies_.push_back(copy);
      continue;
    }
    copy.peer->outgoing.push_back({.packet = {.kind = copy.end, .number = copy.message->number},
                                   .message = copy.message,
                                   .ends_message = true});
    flush(*copy.peer);
  }
  return has_moved;
}

void MessageMatcher::check_memory_of(const MessagePeer& peer) const {
  if (parts_.endpoint.has_withdrawn(parts_.topology.local_rank_of(peer.rank))) {
    throw Error(
        ErrorCode::kPeerLost,
        fmt::format("{} gave up while the message was copied", parts_.ranks.describe(peer.rank)));
  }
}

// What is read counts only if it was still there afterwards.
void MessageMatcher::copy_step(const Copy& copy, std::size_t n_bytes) const {
  const bool is_write = copy.end == PacketKind::kDelivered;
  if (is_write) {
    check_memory_of(*copy.peer);
  }
  if (!copy.is_of_process) {
    std::memcpy(copy.to, copy.from, n_bytes);
  } else if (!copy.peer->process->read(reinterpret_cast<std::uintptr_t>(copy.from),
                                       {copy.to, n_bytes})) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("reading the memory of {} failed: {}",
                            parts_.ranks.describe(copy.peer->rank),
                            std::generic_category().message(errno)));
  }
  if (!is_write) {
    check_memory_of(*copy.peer);
  }
}

// Small messages of the peer have found their receives. Told now and then, not each time.
void MessageMatcher::return_credit(MessagePeer& peer, std::int64_t n_bytes) {
  peer.n_credit_to_return_bytes += n_bytes + kUnexpectedOverheadBytes;
  if (peer.n_credit_to_return_bytes >= peer.least_credit_bytes) {
    send_credit(peer);
  }
}

void MessageMatcher::send_credit(MessagePeer& peer) {
  peer.outgoing.push_back(
      {.packet = {.kind = PacketKind::kCredit, .count = peer.n_credit_to_return_bytes}});
  peer.n_credit_to_return_bytes = 0;
  flush(peer);
}

void MessageMatcher::ask_for_credit() {
  if (std::exchange(is_leaving_, true)) {
    return;
  }
  for (MessagePeer& peer : peers_) {
    if (peer.receives_no_more) {
      answer_ask_credit(peer);
    } else if (owes_credit(peer.rank)) {
      peer.outgoing.push_back({.packet = {.kind = PacketKind::kAskCredit}});
      flush(peer);
    }
  }
}

// A message of a rank to itself is not waited for.
bool MessageMatcher::owes_credit(int rank) const {
  const MessagePeer& peer = peer_of(rank);
  return rank != parts_.topology.rank() && peer.n_uncredited_bytes > 0 && !peer.receives_no_more;
}

// From now on each receive that takes a message of the peer returns credit at once. Where this rank
// leaves too, no receive will take the messages that are kept.
void MessageMatcher::answer_ask_credit(MessagePeer& peer) {
  peer.receives_no_more = true;
  peer.least_credit_bytes = 1;
  if (is_leaving_) {
    peer.n_credit_to_return_bytes += std::exchange(peer.n_unexpected_bytes, 0);
    peer.unexpected.clear();
  }
  if (peer.n_credit_to_return_bytes > 0) {
    send_credit(peer);
  }
}

}  // namespace unisono::engine
