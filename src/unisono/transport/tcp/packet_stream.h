#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/frame_stream.h"

namespace unisono::tcp {

/// Packets to and from one rank of another node, as frames on a stream of their own. Payload goes
/// from and into the memory of the caller.
class PacketStream final : public transport::PacketChannel {
 public:
  /// `name` stands for the peer in errors, e.g. "rank 3 (pid 4123 on node-a)".
  PacketStream(std::string name, std::uint32_t group, std::unique_ptr<transport::Stream> stream)
      : frames_(std::move(name), group, transport::FrameKind::kPacket, std::move(stream)) {}

  [[nodiscard]] bool send(const transport::Packet& packet,
                          std::string_view label,
                          std::span<const std::byte> payload) override;
  [[nodiscard]] const transport::Packet* peek() override;

  [[nodiscard]] std::string_view label() const override { return label_; }

  [[nodiscard]] bool take(std::span<std::byte> payload) override;

  [[nodiscard]] FrameStream& frames() { return frames_; }

  /// A part of a packet is on its way, or could not begin: the socket takes no more now.
  [[nodiscard]] bool is_blocked() const { return is_blocked_; }

  /// The peer has left in good order; nothing more comes.
  [[nodiscard]] bool has_left() const { return has_left_; }

 private:
  [[nodiscard]] bool has_come(const net::IoResult& result);
  void take_frame(const transport::Frame& frame);
  void take_packet_fields(const transport::Frame& frame);

  FrameStream frames_;

  std::vector<std::byte> outgoing_head_;  // Of the packet that is being sent.
  bool is_blocked_ = false;
  bool can_write_ = true;

  std::vector<std::byte> fields_;  // What a packet's frame has before the payload.
  bool has_packet_ = false;
  transport::Packet packet_;
  std::string label_;
  bool has_left_ = false;
};

}  // namespace unisono::tcp
