#include "unisono/transport/tcp/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/leave_frames.h"
#include "unisono/transport/mismatch.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {
namespace {

// Enough for another rank, or the call history in the store, to name the call that differs.
constexpr std::chrono::seconds kTimeToExplain{1};

// Then ranks agree on no sizes, and a frame has in the detail what its sender takes in turn.
bool is_of_any_size(const transport::Descriptor& descriptor) {
  return descriptor.count == transport::kUneven;
}

// What the sender called.
transport::Descriptor called_by(const transport::Frame& frame) {
  transport::Descriptor descriptor = frame.descriptor;
  if (is_of_any_size(descriptor)) {
    descriptor.detail = 0;
  }
  return descriptor;
}

// "at 10.0.0.2:4123 is gone: Connection reset by peer"
std::string describe_end(const std::string& address,
                         const transport::Stream& stream,
                         int error_number) {
  return fmt::format("at {} is gone: {}", address, stream.describe(error_number));
}

// Unlike a machine that vanished.
bool has_hung_up(int error_number) {
  return error_number == ECONNRESET || error_number == EPIPE;
}

}  // namespace

Connection::Connection(int rank,
                       std::string name,
                       std::uint32_t group,
                       std::unique_ptr<transport::Stream> stream,
                       transport::JobRanks job_ranks,
                       bool is_dialed)
    : rank_(rank),
      name_(std::move(name)),
      group_(group),
      stream_(std::move(stream)),
      job_ranks_(job_ranks),
      address_(net::describe_peer(stream_->socket())),
      may_be_untaken_(is_dialed) {}

void Connection::begin(const OperationTag& tag) {
  tag_ = tag;
  send_step_ = 0;
  receive_step_ = 0;
  was_one_way_ = !has_heard_;
  has_heard_ = false;
}

void Connection::post_send(std::span<const std::byte> data, std::uint64_t n_bytes_back) {
  transport::Frame frame{.kind = transport::FrameKind::kData,
                         .step = send_step_++,
                         .sequence = tag_.sequence,
                         .descriptor = tag_.descriptor,
                         .n_bytes = data.size()};
  if (is_of_any_size(frame.descriptor)) {
    frame.descriptor.detail = n_bytes_back;
  }
  n_bytes_given_ = data.size();
  sends_.push_back({.header = transport::encode(frame), .data = data});
}

void Connection::post_receive(std::span<std::byte> data) {
  receives_.push_back(data);
}

bool Connection::can_receive() const {
  return !frame_ || is_matched_ || frame_->kind != transport::FrameKind::kData;
}

bool Connection::progress() {
  const bool has_sent = progress_sends();
  const bool has_received = progress_receives();
  return has_sent || has_received;
}

bool Connection::progress_sends() {
  bool has_moved = false;
  while (!sends_.empty()) {
    const Send& send = sends_.front();
    const std::size_t n_header_sent = std::min(n_sent_, transport::kFrameBytes);
    const std::span<const std::byte> header = std::span(send.header).subspan(n_header_sent);
    const std::span<const std::byte> data = send.data.subspan(n_sent_ - n_header_sent);
    const net::IoResult result = stream_->write_some(header, data);
    if (result.status == net::IoStatus::kWouldBlock) {
      return has_moved;
    }
    if (result.status == net::IoStatus::kError) {
      // The reason may lie in the receive queue, as an abort frame: that says more than a reset.
      progress_receives();
      if (may_be_untaken_ && has_hung_up(result.error_number)) {
        throw not_taken();
      }
      throw Error(ErrorCode::kPeerLost,
                  fmt::format("{} {} after {} of {} bytes were sent",
                              name_,
                              describe_end(address_, *stream_, result.error_number),
                              n_sent_,
                              transport::kFrameBytes + send.data.size()));
    }
    has_moved = true;
    n_sent_ += result.n_bytes;
    if (n_sent_ == transport::kFrameBytes + send.data.size()) {
      sends_.pop_front();
      n_sent_ = 0;
    }
  }
  return has_moved;
}

bool Connection::progress_receives() {
  bool has_moved = false;
  // What follows the last transfer that is due may be a goodbye: no concern of this operation.
  while (is_sending() || is_receiving()) {
    if (!frame_) {
      const std::size_t n_bytes = receive_some(std::span(header_).subspan(n_header_));
      if (n_bytes == 0) {
        return has_moved;
      }
      has_moved = true;
      n_header_ += n_bytes;
      if (n_header_ == transport::kFrameBytes) {
        take_header();
      }
      continue;
    }
    if (frame_->kind == transport::FrameKind::kData) {
      match_data_frame(*frame_);
      if (!is_matched_) {
        return has_moved;  // For an operation that this rank has not come to yet.
      }
    }
    const std::span<std::byte> payload =
        frame_->kind == transport::FrameKind::kData ? receives_.front() : std::span(control_);
    if (n_received_ < payload.size()) {
      const std::size_t n_bytes = receive_some(payload.subspan(n_received_));
      if (n_bytes == 0) {
        return has_moved;
      }
      has_moved = true;
      n_received_ += n_bytes;
    }
    if (n_received_ == payload.size()) {
      if (frame_->kind == transport::FrameKind::kData) {
        receives_.pop_front();
        ++receive_step_;
        has_heard_ = true;
      } else {
        finish_control_frame(*frame_);
      }
      frame_.reset();
      is_matched_ = false;
      n_header_ = 0;
      n_received_ = 0;
    }
  }
  return has_moved;
}

bool Connection::may_tell_abort() const {
  return !has_ended_ && !is_sending() && !is_receiving() &&
         (!frame_ || frame_->kind == transport::FrameKind::kAbort);
}

void Connection::look_for_abort() {
  while (may_tell_abort()) {
    const std::span<std::byte> rest =
        frame_ ? std::span(control_).subspan(n_received_) : std::span(header_).subspan(n_header_);
    if (frame_ && rest.empty()) {
      finish_control_frame(*frame_);
    }
    const net::IoResult result = stream_->read_some(rest);
    if (result.status == net::IoStatus::kWouldBlock) {
      return;
    }
    has_ended_ = result.status != net::IoStatus::kDone;
    may_be_untaken_ = may_be_untaken_ && has_ended_;
    (frame_ ? n_received_ : n_header_) += has_ended_ ? 0 : result.n_bytes;
    if (!frame_ && n_header_ == transport::kFrameBytes) {
      take_header();
    }
  }
}

std::size_t Connection::receive_some(std::span<std::byte> into) {
  const net::IoResult result = stream_->read_some(into);
  switch (result.status) {
    case net::IoStatus::kDone:
      may_be_untaken_ = false;
      return result.n_bytes;
    case net::IoStatus::kWouldBlock:
      return 0;
    case net::IoStatus::kClosed:
      throw may_be_untaken_ ? not_taken() : lost("closed the connection");
    case net::IoStatus::kError:
      break;
  }
  if (may_be_untaken_ && has_hung_up(result.error_number)) {
    throw not_taken();
  }
  throw lost(describe_end(address_, *stream_, result.error_number));
}

void Connection::check_answers() {
  if (answers_.is_silent(stream_->socket())) {
    throw lost(describe_end(address_, *stream_, ETIMEDOUT));
  }
}

Error Connection::lost(const std::string& how) const {
  const std::string when =
      frame_ ? fmt::format("after {} of a transfer's {} bytes", n_received_, frame_->n_bytes)
             : "before its part of the operation arrived";
  return {ErrorCode::kPeerLost, fmt::format("{} {} {}", name_, how, when)};
}

// A rank that leaves ends connections that it has not come to take, without a goodbye.
Error Connection::not_taken() const {
  return {ErrorCode::kPeerLost,
          fmt::format("{} at {} has left the group, or is gone: it ended the connection before its "
                      "part of the operation arrived",
                      name_,
                      address_)};
}

void Connection::take_header() {
  frame_ = transport::decode(header_);
  if (!frame_ || frame_->kind > transport::FrameKind::kLeave) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{} sent bytes that are no frame", name_));
  }
  control_.assign(frame_->kind == transport::FrameKind::kAbort ? frame_->n_bytes : 0, std::byte{0});
}

void Connection::match_data_frame(const transport::Frame& frame) {
  if (is_matched_ || receives_.empty()) {
    if (frame.sequence == tag_.sequence && !is_of_this_operation(frame)) {
      throw mismatch(frame);
    }
    return;
  }
  // Frames of a pair come in order: where one is due, a later operation's means that the peer gave
  // nothing to this one. Its frame does not say what it called instead.
  if (frame.sequence > tag_.sequence) {
    if (!explained_until_) {
      explained_until_ = Deadline::after(kTimeToExplain);
    }
    if (!explained_until_->has_passed()) {
      return;
    }
  }
  if (!is_of_this_operation(frame)) {
    throw mismatch(frame);
  }
  if (frame.step != receive_step_) {
    throw Error(
        ErrorCode::kCorruptData,
        fmt::format(
            "{} sent transfer {} where transfer {} was due", name_, frame.step, receive_step_));
  }
  check_sizes(frame);
  is_matched_ = true;
}

bool Connection::is_of_this_operation(const transport::Frame& frame) const {
  return frame.sequence == tag_.sequence && called_by(frame) == tag_.descriptor;
}

// Blocks of any size: only now does it show what the peer gives, and what it takes. Both ranks find
// out by the frame that they need anyway.
void Connection::check_sizes(const transport::Frame& frame) const {
  const std::uint64_t element_bytes = size_of(tag_.descriptor.dtype);
  const std::uint64_t n_bytes_taken = receives_.front().size();
  const bool has_blocks_of_any_size = is_of_any_size(frame.descriptor);
  if (frame.n_bytes != n_bytes_taken) {
    // What else goes between ranks need not be elements.
    const std::uint64_t unit_bytes = has_blocks_of_any_size ? element_bytes : 1;
    throw Error(ErrorCode::kMismatch,
                fmt::format("{} gives {} {} to this rank, which takes {}",
                            name_,
                            frame.n_bytes / unit_bytes,
                            has_blocks_of_any_size ? "elements" : "bytes",
                            n_bytes_taken / unit_bytes));
  }
  if (has_blocks_of_any_size && frame.descriptor.detail != n_bytes_given_) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("this rank gives {} elements to {}, which takes {}",
                            n_bytes_given_ / element_bytes,
                            name_,
                            frame.descriptor.detail / element_bytes));
  }
}

Error Connection::mismatch(const transport::Frame& frame) const {
  return transport::mismatch(
      {.who = name_, .sequence = frame.sequence, .descriptor = called_by(frame)},
      {.who = "this rank",
       .sequence = tag_.sequence,
       .descriptor = tag_.descriptor,
       .counts = transport::counts_of(tag_.blocks)},
      job_ranks_);
}

void Connection::finish_control_frame(const transport::Frame& frame) {
  if (frame.kind == transport::FrameKind::kLeave) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("{} left the group, but this operation still needs it", name_));
  }
  throw transport::relayed(name_, transport::decode_abort(frame, control_));
}

void Connection::abort(const Error& reason) noexcept {
  // In the middle of a frame no other can begin: the closed connection has to say it all.
  if (n_sent_ == 0) {
    transport::send_abort(*stream_, group_, reason);
  }
  stream_->end_writing();
}

void Connection::say_goodbye() noexcept {
  transport::send_leave(*stream_, group_);
}

void Connection::linger(Deadline deadline) noexcept {
  transport::discard_until_closed(*stream_, deadline);
}

}  // namespace unisono::tcp
