#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/engine/native/point_to_point/message.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/packet_channel.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/process_memory.h"

namespace unisono::engine {

/// What a rank may have sent another in small messages that have not found their receives: what
/// that one keeps for it at most. Messages beyond it are announced, and stay with their sender.
inline constexpr std::int64_t kParkedBytes = 1 << 20;

/// A message's share of it: what keeping it costs besides its data.
inline constexpr std::int64_t kParkedOverheadBytes = 64;

/// A message that came before its receive: with its data, or announced.
struct ParkedMessage {
  transport::Packet packet;
  std::string label;
  std::vector<std::byte> data;
};

/// A packet in the queue to a peer.
struct OutgoingPacket {
  transport::Packet packet;
  std::span<const std::byte> payload = {};
  Message* message = nullptr;  ///< Whose label goes with it, and what it is a part of.
  bool ends_message = false;
};

/// All that is under way between this rank and one other, or itself.
struct MessagePeer {
  int rank = 0;
  /// Null while there is no connection.
  transport::PacketChannel* channel = nullptr;

  /// For a rank of this node.
  const shm::Arena* arena = nullptr;
  std::unique_ptr<shm::ProcessMemory> process = {};

  std::deque<OutgoingPacket> outgoing = {};
  std::int64_t n_uncredited_bytes = 0;
  std::uint32_t n_announced = 0;
  /// Messages, by their calls here and by their first packets.
  std::uint64_t n_sent = 0;
  std::uint64_t n_arrived = 0;
  /// Own sends that wait for the peer, and own receives that wait for its data, by number.
  std::map<std::uint32_t, Message*> announced = {};
  std::map<std::uint32_t, Message*> receiving = {};

  std::deque<ParkedMessage> unexpected = {};
  std::int64_t n_unexpected_bytes = 0;
  std::int64_t n_credit_to_return_bytes = 0;

  /// Where the payload of the packet that is being taken goes: to a receive, or to be unexpected.
  bool is_taking = false;
  Message* taker = nullptr;
  ParkedMessage arriving = {};
  std::span<std::byte> target = {};
};

}  // namespace unisono::engine
