#include "unisono/transport/tcp/packet_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/leave_frames.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {
namespace {

using transport::Packet;

constexpr std::size_t kFieldBytes = 32;

// The frame's header, then u8 kind, dtype, memory, zero; i32 tag; u32 number, n_bytes; i64 count,
// place; then the label. Little-endian.
std::vector<std::byte> encode_head(const Packet& packet, std::string_view label) {
  label = label.substr(0, transport::kMaxLabelBytes);
  ByteWriter writer;
  writer.put_raw(transport::encode({.kind = transport::FrameKind::kPacket,
                                    .step = static_cast<std::uint32_t>(label.size()),
                                    .n_bytes = kFieldBytes + label.size() + packet.n_bytes}));
  writer.put(static_cast<std::uint8_t>(packet.kind));
  writer.put(static_cast<std::uint8_t>(packet.dtype));
  writer.put(static_cast<std::uint8_t>(packet.memory));
  writer.put(std::uint8_t{0});
  writer.put(packet.tag);
  writer.put(packet.number);
  writer.put(packet.n_bytes);
  writer.put(packet.count);
  writer.put(packet.place);
  writer.put_raw(std::as_bytes(std::span(label)));
  return std::move(writer).bytes();
}

Packet decode_fields(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Packet packet;
  packet.kind = static_cast<transport::PacketKind>(reader.get<std::uint8_t>().value_or(0));
  packet.dtype = static_cast<DType>(reader.get<std::uint8_t>().value_or(0));
  packet.memory = static_cast<transport::PacketMemory>(reader.get<std::uint8_t>().value_or(0));
  (void)reader.get<std::uint8_t>();
  packet.tag = reader.get<std::int32_t>().value_or(0);
  packet.number = reader.get<std::uint32_t>().value_or(0);
  packet.n_bytes = reader.get<std::uint32_t>().value_or(0);
  packet.count = reader.get<std::int64_t>().value_or(0);
  packet.place = reader.get<std::int64_t>().value_or(0);
  return packet;
}

}  // namespace

PacketStream::PacketStream(std::string name, std::unique_ptr<transport::Stream> stream)
    : name_(std::move(name)),
      stream_(std::move(stream)),
      address_(net::describe_peer(stream_->socket())) {}

bool PacketStream::send(const Packet& packet,
                        std::string_view label,
                        std::span<const std::byte> payload) {
  if (has_left_ || send_error_ != 0) {
    return false;  // What the peer sent before its end says more than an error here.
  }
  if (outgoing_head_.empty()) {
    outgoing_head_ = encode_head(packet, label);
    n_sent_ = 0;
  }
  const std::size_t n_total = outgoing_head_.size() + payload.size();
  while (n_sent_ < n_total) {
    const std::size_t n_head_sent = std::min(n_sent_, outgoing_head_.size());
    const std::span<const std::byte> head = std::span(outgoing_head_).subspan(n_head_sent);
    const std::span<const std::byte> rest = payload.subspan(n_sent_ - n_head_sent);
    const net::IoResult result = stream_->write_some(head, rest);
    if (result.status != net::IoStatus::kDone) {
      is_blocked_ = result.status == net::IoStatus::kWouldBlock;
      send_error_ = result.error_number;
      return false;
    }
    n_sent_ += result.n_bytes;
  }
  outgoing_head_.clear();
  is_blocked_ = false;
  return true;
}

const Packet* PacketStream::peek() {
  while (!has_packet_ && !has_left_) {
    if (!read_head() || !frame_) {
      return nullptr;
    }
    if (frame_->kind == transport::FrameKind::kPacket) {
      take_packet_fields(*frame_);
    } else {
      finish_control_frame(*frame_);
    }
  }
  return has_packet_ ? &packet_ : nullptr;
}

bool PacketStream::take(std::span<std::byte> payload) {
  if (!read(payload, n_payload_)) {
    return false;
  }
  has_packet_ = false;
  frame_.reset();
  n_header_ = 0;
  n_fields_ = 0;
  n_payload_ = 0;
  return true;
}

// The frame's header and what stands before a payload. False when not all has come.
bool PacketStream::read_head() {
  if (!frame_) {
    if (!read(header_, n_header_)) {
      return false;
    }
    take_frame_header();
  }
  return read(fields_, n_fields_);
}

bool PacketStream::read(std::span<std::byte> into, std::size_t& n_read) {
  while (n_read < into.size()) {
    net::IoResult result = stream_->read_some(into.subspan(n_read));
    if (result.status == net::IoStatus::kWouldBlock && answers_.is_silent(stream_->socket())) {
      result = {.status = net::IoStatus::kError, .error_number = ETIMEDOUT};
    }
    switch (result.status) {
      case net::IoStatus::kDone:
        n_read += result.n_bytes;
        break;
      case net::IoStatus::kWouldBlock:
        return false;
      case net::IoStatus::kClosed:
        throw Error(ErrorCode::kPeerLost,
                    fmt::format("{} closed the connection without leaving the group", name_));
      case net::IoStatus::kError:
        throw Error(
            ErrorCode::kPeerLost,
            fmt::format(
                "{} at {} is gone: {}", name_, address_, stream_->describe(result.error_number)));
    }
  }
  return true;
}

void PacketStream::take_frame_header() {
  frame_ = transport::decode(header_);
  const bool is_known = frame_ && frame_->kind != transport::FrameKind::kData &&
                        frame_->kind <= transport::FrameKind::kPacket &&
                        (frame_->kind != transport::FrameKind::kPacket ||
                         (frame_->step <= transport::kMaxLabelBytes &&
                          frame_->n_bytes >= kFieldBytes + frame_->step));
  if (!is_known) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} sent bytes that are no frame", name_));
  }
  fields_.resize(frame_->kind == transport::FrameKind::kPacket ? kFieldBytes + frame_->step
                                                               : frame_->n_bytes);
}

void PacketStream::take_packet_fields(const transport::Frame& frame) {
  packet_ = decode_fields(fields_);
  if (!transport::is_plausible(packet_) ||
      frame.n_bytes != kFieldBytes + frame.step + packet_.n_bytes) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} sent bytes that are no packet", name_));
  }
  label_.assign(reinterpret_cast<const char*>(fields_.data()) + kFieldBytes, frame.step);
  has_packet_ = true;
}

void PacketStream::finish_control_frame(const transport::Frame& frame) {
  if (frame.kind == transport::FrameKind::kAbort) {
    throw transport::relayed(name_, transport::decode_abort(frame, fields_));
  }
  has_left_ = true;
}

void PacketStream::abort(const Error& reason) noexcept {
  if (can_begin_frame()) {
    transport::send_abort(*stream_, 0, reason);
  }
  stream_->end_writing();
}

void PacketStream::say_goodbye() noexcept {
  if (can_begin_frame()) {
    transport::send_leave(*stream_, 0);
  }
}

void PacketStream::linger(Deadline deadline) noexcept {
  transport::discard_until_closed(*stream_, deadline);
}

// In the middle of a frame no other can begin: the closed connection has to say it all.
bool PacketStream::can_begin_frame() const {
  return outgoing_head_.empty() || n_sent_ == 0;
}

}  // namespace unisono::tcp
