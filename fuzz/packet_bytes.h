#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/remote/frame_stream.h"
#include "unisono/transport/stream.h"

#include "expect.h"
#include "sockets.h"

namespace unisono::fuzz {

/// Returns the bytes that the library's sender writes for a packet, at most the size of a socket's
/// queue.
inline std::vector<std::byte> packet_bytes(const transport::Packet& packet,
                                           std::string_view label,
                                           std::span<const std::byte> payload) {
  constexpr std::size_t kFieldBytes = 32;
  auto [ours, theirs] = connected_sockets();
  tcp::PacketStream sender("rank 0", 0, std::make_unique<tcp::TcpStream>(std::move(ours)));
  expect(sender.send(packet, label, payload), "a socket has room for the packet");
  std::vector<std::byte> bytes(transport::kFrameBytes + kFieldBytes + transport::kMaxLabelBytes +
                               payload.size());
  bytes.resize(net::read_some(theirs.get(), bytes).n_bytes);
  return bytes;
}

}  // namespace unisono::fuzz
