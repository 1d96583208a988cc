#include "unisono/transport/remote/frame_stream.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <type_traits>

#include "unisono/base/bytes.h"
#include "unisono/transport/failure.h"

namespace unisono::tcp {

using transport::FrameKind;

const net::IoResult FrameStream::kUnanswered{.status = net::IoStatus::kError,
                                             .error_number = ETIMEDOUT};

FrameStream::FrameStream(std::string name,
                         std::uint32_t group,
                         FrameKind kind,
                         std::unique_ptr<transport::Stream> stream)
    : name_(std::move(name)),
      group_(group),
      kind_(kind),
      stream_(std::move(stream)),
      address_(net::describe_peer(stream_->socket())) {}

net::IoResult FrameStream::write(std::span<const std::byte> head,
                                 std::span<const std::byte> payload) noexcept {
  const std::size_t n_before = n_written_;
  while (n_written_ < head.size() + payload.size()) {
    const std::size_t n_of_head = std::min(n_written_, head.size());
    net::IoResult result =
        stream_->write_some(head.subspan(n_of_head), payload.subspan(n_written_ - n_of_head));
    if (result.status != net::IoStatus::kDone) {
      result.n_bytes = n_written_ - n_before;
      return result;
    }
    n_written_ += result.n_bytes;
  }
  n_written_ = 0;
  return {.n_bytes = head.size() + payload.size() - n_before};
}

net::IoResult FrameStream::read(std::span<std::byte> part) noexcept {
  const std::size_t n_before = n_read_;
  while (n_read_ < part.size()) {
    net::IoResult result = stream_->read_some(part.subspan(n_read_));
    if (result.status != net::IoStatus::kDone) {
      result.n_bytes = n_read_ - n_before;
      return result;
    }
    n_read_ += result.n_bytes;
  }
  n_read_ = 0;
  return {.n_bytes = part.size() - n_before};
}

net::IoResult FrameStream::read_header() {
  if (abort_) {
    throw Error(*abort_);
  }
  net::IoResult result;
  if (!frame_) {
    result = read(header_);
    if (result.status != net::IoStatus::kDone) {
      return result;
    }
    take_header();
  }
  if (const transport::Frame& frame = *this->frame(); frame.kind == FrameKind::kAbort) {
    const std::size_t n_of_header = result.n_bytes;
    result = read(abort_text_);
    result.n_bytes += n_of_header;
    if (result.status == net::IoStatus::kDone) {
      abort_ = transport::relayed(name_, transport::decode_abort(frame, abort_text_));
      throw Error(*abort_);
    }
  }
  return result;
}

void FrameStream::take_header() {
  frame_ = transport::decode(header_);
  if (!frame_ || (frame_->kind != kind_ && frame_->kind != FrameKind::kAbort &&
                  frame_->kind != FrameKind::kLeave)) {
    throw corrupt("frame");
  }
  if (frame_->kind == FrameKind::kAbort) {
    abort_text_.resize(frame_->n_bytes);
  }
}

Error FrameStream::lost(const net::IoResult& result, std::string_view when) const {
  const std::string how =
      result.status == net::IoStatus::kClosed
          ? "closed the connection"
          : fmt::format("at {} is gone: {}", address_, stream_->describe(result.error_number));
  return {ErrorCode::kPeerLost,
          fmt::format("{} {}{}{}", name_, how, when.empty() ? "" : " ", when)};
}

Error FrameStream::corrupt(std::string_view expected) const {
  return {ErrorCode::kCorruptData, fmt::format("{} sent an invalid {}", name_, expected)};
}

// No other frame can begin in the middle of a frame, and a full socket accepts no frame. The end of
// the connection is then the only signal.
template <class MakeFrame>
void FrameStream::write_last(MakeFrame make_frame) noexcept {
  if (n_written_ > 0) {
    return;
  }
  try {
    (void)stream_->write_some(make_frame(), {});
  } catch (const std::exception&) {
    return;  // Out of memory: the frame is not sent.
  }
}

void FrameStream::abort(const Error& reason) noexcept {
  write_last([&] { return transport::encode_abort(group_, reason); });
  stream_->end_writing();
}

void FrameStream::say_goodbye() noexcept {
  write_last([this] { return transport::encode_leave(group_); });
}

void FrameStream::linger(Deadline deadline) noexcept {
  try {
    std::array<std::byte, 4096> discarded{};
    while (!deadline.has_passed()) {
      const net::IoResult result = stream_->read_some(discarded);
      if (result.status == net::IoStatus::kClosed || result.status == net::IoStatus::kError) {
        return;
      }
      if (result.status == net::IoStatus::kWouldBlock) {
        std::vector<pollfd> polls;
        stream_->add_polls(polls, true, false);
        (void)::poll(polls.data(), polls.size(), deadline.poll_timeout_ms());
      }
    }
  } catch (const std::exception&) {
    return;  // For example out of memory: the peer then reads only the bytes that have arrived.
  }
}

namespace {

using transport::Packet;

constexpr std::size_t kFieldBytes = 32;
static_assert(sizeof(Packet) == kFieldBytes && std::is_trivially_copyable_v<Packet>);

// Layout: the frame's header; u8 kind, dtype, memory, zero; i32 tag; u32 number, n_bytes; i64
// count, place; the label. Little-endian.
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
    return false;  // Frames that the peer sent before the end explain more than an error here.
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
