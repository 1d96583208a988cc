#include "unisono/transport/tcp/packet_stream.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/tcp/frame_stream.h"

namespace unisono::tcp {
namespace {

using transport::Packet;

constexpr std::size_t kFieldBytes = 32;
static_assert(sizeof(Packet) == kFieldBytes && std::is_trivially_copyable_v<Packet>);

// The frame's header, then u8 kind, dtype, memory, zero; i32 tag; u32 number, n_bytes; i64 count,
// place; then the label. Little-endian.
std::vector<std::byte> encode_head(const Packet& packet, std::string_view label) {
  label = label.substr(0, transport::kMaxLabelBytes);
  ByteWriter writer;
  writer.put_raw(transport::encode({.kind = transport::FrameKind::kPacket,
                                    .step = static_cast<std::uint32_t>(label.size()),
                                    .n_bytes = kFieldBytes + label.size() + packet.n_bytes}));
  writer.put_raw(std::as_bytes(std::span(&packet, 1)));
  writer.put_raw(std::as_bytes(std::span(label)));
  return std::move(writer).bytes();
}

}  // namespace

bool PacketStream::send(const Packet& packet,
                        std::string_view label,
                        std::span<const std::byte> payload) {
  if (has_left_ || !can_write_) {
    return false;  // What the peer sent before its end says more than an error here.
  }
  if (outgoing_head_.empty()) {
    outgoing_head_ = encode_head(packet, label);
  }
  const net::IoStatus status = frames_.write(outgoing_head_, payload).status;
  is_blocked_ = status == net::IoStatus::kWouldBlock;
  can_write_ = is_blocked_ || status == net::IoStatus::kDone;
  if (status != net::IoStatus::kDone) {
    return false;
  }
  outgoing_head_.clear();
  return true;
}

const Packet* PacketStream::peek() {
  if (!has_packet_ && !has_left_ && has_come(frames_.read_header())) {
    take_frame(*frames_.frame());
  }
  return has_packet_ ? &packet_ : nullptr;
}

bool PacketStream::take(std::span<std::byte> payload) {
  if (!has_come(frames_.read(payload))) {
    return false;
  }
  frames_.finish_frame();
  has_packet_ = false;
  fields_.clear();
  return true;
}

bool PacketStream::has_come(const net::IoResult& result) {
  switch (result.status) {
    case net::IoStatus::kDone:
      return true;
    case net::IoStatus::kWouldBlock:
      break;
    case net::IoStatus::kClosed:
      throw frames_.lost(result, "without leaving the group");
    case net::IoStatus::kError:
      throw frames_.lost(result, "");
  }
  if (frames_.is_unanswered()) {
    throw frames_.lost(FrameStream::kUnanswered, "");
  }
  return false;
}

void PacketStream::take_frame(const transport::Frame& frame) {
  if (frame.kind == transport::FrameKind::kLeave) {
    has_left_ = true;
    return;
  }
  if (fields_.empty()) {
    if (frame.step > transport::kMaxLabelBytes || frame.n_bytes < kFieldBytes + frame.step) {
      throw frames_.corrupt("frame");
    }
    fields_.resize(kFieldBytes + frame.step);
  }
  if (has_come(frames_.read(fields_))) {
    take_packet_fields(frame);
  }
}

void PacketStream::take_packet_fields(const transport::Frame& frame) {
  std::memcpy(&packet_, fields_.data(), kFieldBytes);
  if (!transport::is_plausible(packet_) ||
      frame.n_bytes != kFieldBytes + frame.step + packet_.n_bytes) {
    throw frames_.corrupt("packet");
  }
  label_.assign(reinterpret_cast<const char*>(fields_.data()) + kFieldBytes, frame.step);
  has_packet_ = true;
}

}  // namespace unisono::tcp
