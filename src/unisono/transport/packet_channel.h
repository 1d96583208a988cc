#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "unisono/transport/packet.h"

namespace unisono::transport {

/// Packets to and from one rank, in order. Never blocks. One thread at a time.
class PacketChannel {
 public:
  PacketChannel() = default;
  virtual ~PacketChannel() = default;
  PacketChannel(const PacketChannel&) = delete;
  PacketChannel& operator=(const PacketChannel&) = delete;
  PacketChannel(PacketChannel&&) = delete;
  PacketChannel& operator=(PacketChannel&&) = delete;

  /// Hands over a packet with its label and its payload of packet.n_bytes. False when it does not
  /// fit now: to be called again with the same arguments, as a part may be on its way.
  [[nodiscard]] virtual bool send(const Packet& packet,
                                  std::string_view label,
                                  std::span<const std::byte> payload) = 0;

  /// The packet that is to be taken next; null when none has come. It is plausible.
  ///
  /// Throws Error: kCorruptData, kPeerLost, and the peer's own error when its group failed.
  [[nodiscard]] virtual const Packet* peek() = 0;

  /// The label of the packet that peek() showed, until it is taken.
  [[nodiscard]] virtual std::string_view label() const = 0;

  /// Takes that packet, its payload into memory of its size. False when not all has come: to be
  /// called again with the same memory. Throws as peek() does.
  [[nodiscard]] virtual bool take(std::span<std::byte> payload) = 0;
};

}  // namespace unisono::transport
