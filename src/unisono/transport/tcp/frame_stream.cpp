#include "unisono/transport/tcp/frame_stream.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/stream.h"

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
  return {ErrorCode::kCorruptData, fmt::format("{} sent bytes that are no {}", name_, expected)};
}

// In the middle of a frame no other can begin, and a full socket takes none: then the end of the
// connection has to say it all.
template <class MakeFrame>
void FrameStream::write_last(MakeFrame make_frame) noexcept {
  if (n_written_ > 0) {
    return;
  }
  try {
    (void)stream_->write_some(make_frame(), {});
  } catch (const std::exception&) {
    return;  // Out of memory while giving up.
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
    return;  // Out of memory, say: then the other side reads as far as it came.
  }
}

}  // namespace unisono::tcp
