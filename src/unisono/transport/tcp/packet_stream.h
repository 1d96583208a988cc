#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/answer_watch.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/packet_channel.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/liveness.h"

namespace unisono::tcp {

/// Packets to and from one rank of another node, as frames on a connection of their own. Payload
/// goes from and into the memory of the caller.
class PacketStream final : public transport::PacketChannel {
 public:
  /// `name` stands for the peer in errors, e.g. "rank 3 (pid 4123 on node-a)".
  PacketStream(std::string name, std::unique_ptr<transport::Stream> stream);

  [[nodiscard]] bool send(const transport::Packet& packet,
                          std::string_view label,
                          std::span<const std::byte> payload) override;
  [[nodiscard]] const transport::Packet* peek() override;

  [[nodiscard]] std::string_view label() const override { return label_; }

  [[nodiscard]] bool take(std::span<std::byte> payload) override;

  [[nodiscard]] transport::Stream& stream() const { return *stream_; }

  /// A part of a packet is on its way, or could not begin: the socket takes no more now.
  [[nodiscard]] bool is_blocked() const { return is_blocked_; }

  /// The peer has left in good order; nothing more comes.
  [[nodiscard]] bool has_left() const { return has_left_; }

  /// Tells the peer why this side's group failed, if a frame can still begin; then ends the
  /// connection. Does not block, does not throw.
  void abort(const Error& reason) noexcept;

  /// Tells the peer that this rank leaves in good order. Does not block, does not throw.
  void say_goodbye() noexcept;

  /// Takes and drops what still comes, until the peer hangs up or the deadline passes.
  void linger(Deadline deadline) noexcept;

 private:
  [[nodiscard]] bool read(std::span<std::byte> into, std::size_t& n_read);
  [[nodiscard]] bool read_head();
  void take_frame_header();
  void take_packet_fields(const transport::Frame& frame);
  void finish_control_frame(const transport::Frame& frame);
  [[nodiscard]] bool can_begin_frame() const;

  std::string name_;
  std::unique_ptr<transport::Stream> stream_;
  std::string address_;  // The other end of the stream's socket.
  net::AnswerWatch answers_{kLivenessTimeout};

  std::vector<std::byte> outgoing_head_;  // Of the packet that is being sent.
  std::size_t n_sent_ = 0;                // Of it, head included.
  bool is_blocked_ = false;
  int send_error_ = 0;

  transport::FrameBytes header_{};
  std::size_t n_header_ = 0;
  std::optional<transport::Frame> frame_;  // The header is complete.
  std::vector<std::byte> fields_;          // What follows it, before the payload.
  std::size_t n_fields_ = 0;
  bool has_packet_ = false;
  transport::Packet packet_;
  std::string label_;
  std::size_t n_payload_ = 0;
  bool has_left_ = false;
};

}  // namespace unisono::tcp
