#include "unisono/engine/native/point_to_point/message_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "unisono/engine/native/shared_memory.h"

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

MessageTransfer::MessageTransfer(const MessageParts& parts)
    : parts_(parts), arena_(parts.endpoint.arena(parts.topology.local_rank())) {
  const collective::Topology& topology = parts_.topology;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    peers_.push_back({.rank = rank});
  }
  for (const int rank : topology.local_ranks()) {
    const int local_rank = topology.local_rank_of(rank);
    MessagePeer& peer = this->peer(rank);
    rings_.push_back(parts_.endpoint.channel(local_rank));
    peer.channel = rings_.back().get();
    peer.arena = &parts_.endpoint.arena(local_rank);
    peer.process = std::make_unique<shm::ProcessMemory>(parts_.endpoint.process_memory(local_rank));
    on_node_.push_back(&peer);
  }
}

bool MessageTransfer::add_connections() {
  const std::vector<int> ranks = parts_.packet_streams.progress();
  for (const int rank : ranks) {
    MessagePeer& peer = this->peer(rank);
    peer.channel = parts_.packet_streams.find(rank);
    connected_.push_back(&peer);
  }
  return !ranks.empty();
}

void MessageTransfer::abandon() {
  parts_.endpoint.withdraw();
  for (MessagePeer& peer : peers_) {
    peer.outgoing.clear();
    peer.announced.clear();
    peer.receiving.clear();
    peer.unexpected.clear();
    peer.taker = nullptr;
  }
  copies_.clear();
  ended_.clear();
}

namespace {

using transport::Packet;
using transport::PacketKind;
using transport::PacketMemory;

// Up to this size two copies without a reply are faster than a single copy with a reply.
constexpr std::int64_t kMaxSmallBytesOnNode = 16 << 10;

// Size of a segment, which bounds the delay of other messages to the peer.
constexpr std::int64_t kSegmentBytesOnNode = 64 << 10;
constexpr std::int64_t kSegmentBytesBetweenNodes = 512 << 10;

// Bytes of a copy that a pass moves, so that other messages get their turn.
constexpr std::int64_t kCopyStepBytes = 1 << 20;

// From this size on each rank copies a half, if each can access the other's memory.
constexpr std::int64_t kMinSharedBytes = 128 << 10;

// Returns the address of the announced data in its sender's process.
const std::byte* address_of(const Packet& packet) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): this process never dereferences it.
  return reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(packet.place));
}

// Returns whether the message carries its data. The peer then keeps the data until the receive is
// posted.
bool is_small(const MessagePeer& peer, std::int64_t n_bytes) {
  const std::int64_t limit = peer.is_on_node() ? kMaxSmallBytesOnNode : transport::kMaxSmallBytes;
  return n_bytes <= limit &&
         peer.n_uncredited_bytes + n_bytes + kUnexpectedOverheadBytes <= kMostUnexpectedBytes;
}

}  // namespace

// Returns false if the message is not small, if other packets are queued, or if the channel accepts
// only a part.
bool MessageTransfer::send_small(MessagePeer& peer,
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

bool MessageTransfer::send_at_once(int to, int tag, const Buffer& buffer, std::string_view label) {
  MessagePeer& peer = this->peer(to);
  return peer.is_on_node() && send_small(peer, tag, buffer, label);
}

void MessageTransfer::post_send(Message& message) {
  MessagePeer& peer = this->peer(message.peer);
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
  connect(peer);
  flush(peer);
}

bool MessageTransfer::flush(MessagePeer& peer) {
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

// Queues a single segment behind all waiting packets, so that a long message does not delay others.
void MessageTransfer::queue_segment(MessagePeer& peer, Message& message) {
  const std::int64_t limit = peer.is_on_node() ? kSegmentBytesOnNode : kSegmentBytesBetweenNodes;
  const auto begin = static_cast<std::size_t>(message.n_moved_bytes);
  const auto n_bytes =
      static_cast<std::size_t>(std::min(limit, message.buffer.n_bytes() - message.n_moved_bytes));
  peer.outgoing.push_back({.packet = {.kind = PacketKind::kData,
                                      .number = message.number,
                                      .n_bytes = static_cast<std::uint32_t>(n_bytes)},
                           .payload = message.bytes().subspan(begin, n_bytes),
                           .message = &message});
}

// The receiver has memory for the announced message, and itself copies the first `count` bytes of
// the message.
void MessageTransfer::answer_clear(MessagePeer& peer, const Packet& packet) {
  const bool is_shared = packet.count > 0;
  Message& message = find_waiting(peer, peer.announced, packet.number);
  if (!is_shared) {
    peer.announced.erase(packet.number);
  }
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
  if (!peer.is_on_node() || packet.place < 0 || packet.place > peer.arena->n_bytes() - n_bytes ||
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

bool MessageTransfer::move_copies() {
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

void MessageTransfer::check_memory_of(const MessagePeer& peer) const {
  if (parts_.endpoint.has_withdrawn(parts_.topology.local_rank_of(peer.rank))) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("{} aborted while the message was copied",
                            transport::describe(parts_.ranks.member(peer.rank))));
  }
}

// Data that was read is valid only if the peer has not withdrawn its memory meanwhile.
void MessageTransfer::copy_step(const Copy& copy, std::size_t n_bytes) const {
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
                            transport::describe(parts_.ranks.member(copy.peer->rank)),
                            std::generic_category().message(errno)));
  }
  if (!is_write) {
    check_memory_of(*copy.peer);
  }
}

void MessageTransfer::send_credit(MessagePeer& peer) {
  peer.outgoing.push_back(
      {.packet = {.kind = PacketKind::kCredit, .count = peer.n_credit_to_return_bytes}});
  peer.n_credit_to_return_bytes = 0;
  flush(peer);
}

void MessageTransfer::ask_for_credit() {
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

// From now on each receive that takes a message of the peer returns credit at once. If this rank
// leaves too, no receive will take the messages that it has kept.
void MessageTransfer::answer_ask_credit(MessagePeer& peer) {
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

// Returns whether this rank reads the peer's private memory. The alternative, segments, requires
// both ranks to act at the same time: a rank that computes meanwhile would delay each segment.
bool MessageTransfer::reads_announced(const MessagePeer& peer,
                                      const Message& message,
                                      const Packet& packet) const {
  const bool do_both_wait = message.is_attended && packet.memory == PacketMemory::kAttended;
  return peer.process->is_readable() &&
         (parts_.prefers_single_copy || !do_both_wait || is_single_copy_faster());
}

void MessageTransfer::receive_announced(MessagePeer& peer, Message& message, const Packet& packet) {
  message.number = packet.number;
  const std::int64_t n_bytes = message.buffer.n_bytes();
  if (n_bytes == 0) {
    peer.outgoing.push_back({.packet = {.kind = PacketKind::kTaken, .number = packet.number},
                             .message = &message,
                             .ends_message = true});
    flush(peer);
    return;
  }
  const bool is_local = peer.is_on_node();
  const bool is_in_arena = is_local && packet.memory == PacketMemory::kArena;
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
  const auto offset = is_local ? arena_.offset_of(message.buffer.data, n_bytes) : std::nullopt;
  const bool is_shared = is_in_arena && offset && n_bytes >= kMinSharedBytes;
  if (is_shared) {
    message.n_parts = 2;
    copy.n_bytes = n_bytes / 2;
  } else if (is_in_arena || (is_local && !offset && reads_announced(peer, message, packet))) {
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

Message& MessageTransfer::find_receiver(MessagePeer& peer, const Packet& packet) const {
  const auto found = peer.receiving.find(packet.number);
  if (found == peer.receiving.end() ||
      found->second->buffer.n_bytes() - found->second->n_moved_bytes < packet.n_bytes) {
    throw corrupt(peer, "sent data that was not requested");
  }
  return *found->second;
}

void MessageTransfer::finish_segment(MessagePeer& peer, Message& receiver, const Packet& packet) {
  receiver.n_moved_bytes += packet.n_bytes;
  if (receiver.n_moved_bytes == receiver.buffer.n_bytes()) {
    peer.receiving.erase(packet.number);
    end_part(receiver);
  }
}

void MessageTransfer::process(MessagePeer& peer, const Packet& packet) {
  switch (packet.kind) {
    case PacketKind::kDelivered:
      end_waiting(peer, peer.receiving, packet.number);
      return;
    case PacketKind::kClear:
      answer_clear(peer, packet);
      return;
    case PacketKind::kTaken:
      end_waiting(peer, peer.announced, packet.number);
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
    default:
      return;
  }
}

Message& MessageTransfer::find_waiting(MessagePeer& peer,
                                       const std::map<std::uint32_t, Message*>& waiting,
                                       std::uint32_t number) const {
  const auto found = waiting.find(number);
  if (found == waiting.end()) {
    throw corrupt(peer, "answered a message that expects no answer");
  }
  return *found->second;
}

void MessageTransfer::end_waiting(MessagePeer& peer,
                                  std::map<std::uint32_t, Message*>& waiting,
                                  std::uint32_t number) {
  Message& message = find_waiting(peer, waiting, number);
  waiting.erase(number);
  end_part(message);
}

Error MessageTransfer::corrupt(const MessagePeer& peer, std::string_view problem) const {
  return {ErrorCode::kCorruptData,
          fmt::format("{} {}", transport::describe(parts_.ranks.member(peer.rank)), problem)};
}

}  // namespace unisono::engine
