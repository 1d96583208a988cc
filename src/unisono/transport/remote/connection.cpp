#include "unisono/transport/remote/connection.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace unisono::tcp {
namespace {

// Delay before a mismatch is reported here: time for another rank, or the call history in the
// store, to name the differing call.
constexpr std::chrono::seconds kTimeToExplain{1};

// In an operation with blocks of any size, ranks agree on no sizes. The detail of a frame is then
// the number of bytes that the sender takes in return.
bool is_of_any_size(const transport::Descriptor& descriptor) {
  return descriptor.count == transport::kUneven;
}

// Returns the descriptor of the sender's call, without the byte count that a frame of an operation
// with blocks of any size carries.
transport::Descriptor called_by(const transport::Frame& frame) {
  transport::Descriptor descriptor = frame.descriptor;
  if (is_of_any_size(descriptor)) {
    descriptor.detail = 0;
  }
  return descriptor;
}

}  // namespace

Connection::Connection(int rank,
                       std::string name,
                       std::uint32_t group,
                       std::unique_ptr<transport::Stream> stream,
                       transport::JobRanks job_ranks)
    : rank_(rank),
      frames_(std::move(name), group, transport::FrameKind::kData, std::move(stream)),
      job_ranks_(job_ranks) {}

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
  return frames_.frame() == nullptr || is_matched_ ||
         frames_.frame()->kind != transport::FrameKind::kData;
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
    const net::IoResult result = frames_.write(send.header, send.data);
    has_moved = has_moved || result.n_bytes > 0;
    if (result.status == net::IoStatus::kWouldBlock) {
      return has_moved;
    }
    if (result.status != net::IoStatus::kDone) {
      // An abort frame of the peer may be in the receive queue; the error in it explains more than
      // a reset.
      progress_receives();
      throw frames_.lost(result,
                         fmt::format("after {} of {} bytes were sent",
                                     frames_.n_written(),
                                     transport::kFrameBytes + send.data.size()));
    }
    sends_.pop_front();
  }
  return has_moved;
}

bool Connection::progress_receives() {
  bool has_moved = false;
  // A frame behind the last due transfer may be a leave frame, which does not concern this
  // operation.
  while (is_sending() || is_receiving()) {
    const net::IoResult header = frames_.read_header();
    has_moved = has_moved || header.n_bytes > 0;
    if (!has_come(header)) {
      return has_moved;
    }
    const transport::Frame& frame = *frames_.frame();
    if (frame.kind == transport::FrameKind::kLeave) {
      throw Error(
          ErrorCode::kPeerLost,
          fmt::format("{} left the group, but this operation still needs it", frames_.name()));
    }
    match_data_frame(frame);
    if (!is_matched_) {
      return has_moved;  // The frame belongs to an operation that this rank has not reached.
    }
    const net::IoResult payload = frames_.read(receives_.front());
    has_moved = has_moved || payload.n_bytes > 0;
    if (!has_come(payload)) {
      return has_moved;
    }
    receives_.pop_front();
    ++receive_step_;
    has_heard_ = true;
    is_matched_ = false;
    frames_.finish_frame();
  }
  return has_moved;
}

bool Connection::may_tell_abort() const {
  return !has_ended_ && !is_sending() && !is_receiving() && frames_.may_tell_abort();
}

void Connection::look_for_abort() {
  while (may_tell_abort()) {
    const net::IoResult result = frames_.read_header();
    if (result.status == net::IoStatus::kWouldBlock) {
      return;
    }
    has_ended_ = result.status != net::IoStatus::kDone;
  }
}

bool Connection::has_come(const net::IoResult& result) {
  if (result.status == net::IoStatus::kDone || result.status == net::IoStatus::kWouldBlock) {
    return result.status == net::IoStatus::kDone;
  }
  throw lost(result);
}

void Connection::check_answers() {
  if (frames_.is_unanswered()) {
    throw lost(FrameStream::kUnanswered);
  }
}

Error Connection::lost(const net::IoResult& result) const {
  const transport::Frame* const frame = frames_.frame();
  return frames_.lost(
      result,
      frame == nullptr
          ? "before its part of the operation arrived"
          : fmt::format("after {} of a transfer's {} bytes", frames_.n_read(), frame->n_bytes));
}

void Connection::match_data_frame(const transport::Frame& frame) {
  if (is_matched_ || receives_.empty()) {
    if (frame.sequence == tag_.sequence && !is_of_this_operation(frame)) {
      throw mismatch(frame);
    }
    return;
  }
  // Frames of a pair arrive in order. If a frame is due and a later operation's frame arrives, the
  // peer has sent no data for this operation, and the frame does not name the operation called
  // instead.
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
    throw Error(ErrorCode::kCorruptData,
                fmt::format("{} sent transfer {} where transfer {} was expected",
                            frames_.name(),
                            frame.step,
                            receive_step_));
  }
  check_sizes(frame);
  is_matched_ = true;
}

bool Connection::is_of_this_operation(const transport::Frame& frame) const {
  return frame.sequence == tag_.sequence && called_by(frame) == tag_.descriptor;
}

// With blocks of any size, this is the first point at which the sizes of both ranks meet. Both
// ranks detect a difference by a frame that is needed anyway.
void Connection::check_sizes(const transport::Frame& frame) const {
  const std::uint64_t element_bytes = size_of(tag_.descriptor.dtype);
  const std::uint64_t n_bytes_taken = receives_.front().size();
  const bool has_blocks_of_any_size = is_of_any_size(frame.descriptor);
  if (frame.n_bytes != n_bytes_taken) {
    // Other transfers need not consist of elements.
    const std::uint64_t unit_bytes = has_blocks_of_any_size ? element_bytes : 1;
    throw Error(ErrorCode::kMismatch,
                fmt::format("{} gives {} {} to this rank, which takes {}",
                            frames_.name(),
                            frame.n_bytes / unit_bytes,
                            has_blocks_of_any_size ? "elements" : "bytes",
                            n_bytes_taken / unit_bytes));
  }
  if (has_blocks_of_any_size && frame.descriptor.detail != n_bytes_given_) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("this rank gives {} elements to {}, which takes {}",
                            n_bytes_given_ / element_bytes,
                            frames_.name(),
                            frame.descriptor.detail / element_bytes));
  }
}

Error Connection::mismatch(const transport::Frame& frame) const {
  return transport::mismatch(
      {.who = frames_.name(), .sequence = frame.sequence, .descriptor = called_by(frame)},
      {.who = "this rank",
       .sequence = tag_.sequence,
       .descriptor = tag_.descriptor,
       .counts = transport::counts_of(tag_.blocks)},
      job_ranks_);
}

}  // namespace unisono::tcp
