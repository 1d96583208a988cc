#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
#include "unisono/transport/stream.h"

namespace unisono::tcp {

/// Frames to and from a rank of another node. Payload moves directly from and into the caller's
/// memory.
///
/// Owns the stream; owned by a Connection or a PacketStream. Not thread-safe. No call blocks except
/// linger(). write() and read() return the bytes moved by this call, and kDone once all are moved;
/// until then call again with the same arguments. read_header() throws the peer's errors.
class FrameStream {
 public:
  /// `name` denotes the peer in errors, e.g. "rank 3 (pid 4123 on node-a)". Incoming frames must be
  /// of `kind`, kAbort or kLeave. `group` is the group's number in the abort and leave frames that
  /// this side writes.
  FrameStream(std::string name,
              std::uint32_t group,
              transport::FrameKind kind,
              std::unique_ptr<transport::Stream> stream);

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] transport::Stream& stream() const { return *stream_; }

  /// Writes a frame: `head`, i.e. the header with attached fields, followed by `payload`.
  [[nodiscard]] net::IoResult write(std::span<const std::byte> head,
                                    std::span<const std::byte> payload) noexcept;

  /// Bytes written so far of the frame in progress.
  [[nodiscard]] std::size_t n_written() const { return n_written_; }

  /// Reads until frame() is available.
  ///
  /// Throws Error(kCorruptData) for an invalid or unexpected frame. Throws the peer's own error if
  /// the peer aborted, on every call.
  [[nodiscard]] net::IoResult read_header();

  /// Returns the unfinished frame after its header has arrived; null otherwise.
  [[nodiscard]] const transport::Frame* frame() const { return frame_ ? &*frame_ : nullptr; }

  /// Fills `part` with the next bytes of the frame's payload.
  [[nodiscard]] net::IoResult read(std::span<std::byte> part) noexcept;

  /// Bytes read so far of the header or part in progress.
  [[nodiscard]] std::size_t n_read() const { return n_read_; }

  /// Must be called after the frame's whole payload was read.
  void finish_frame() { frame_.reset(); }

  /// Returns true if no frame other than an abort has begun to arrive.
  [[nodiscard]] bool may_tell_abort() const {
    return !frame_ || frame_->kind == transport::FrameKind::kAbort;
  }

  /// Returns true if the peer has left sent data unacknowledged for transport::kLivenessTimeout. A
  /// waiting thread calls this function about every transport::kLivenessLook.
  [[nodiscard]] bool is_unanswered() noexcept { return answers_.is_silent(stream_->socket()); }

  /// Result (ETIMEDOUT) that stands for a connection with is_unanswered().
  static const net::IoResult kUnanswered;

  /// Returns the error for a connection that ended with `result`. `when` is a phrase with the state
  /// of the transfer.
  [[nodiscard]] Error lost(const net::IoResult& result, std::string_view when) const;

  /// Returns the error for a peer that sent invalid bytes where `expected` was due.
  [[nodiscard]] Error corrupt(std::string_view expected) const;

  /// Sends the error of this side's group to the peer if a frame can still begin, then ends this
  /// direction of the connection. Does not block or throw.
  void abort(const Error& reason) noexcept;

  /// Sends a leave frame: this rank leaves cleanly. Does not block or throw.
  void say_goodbye() noexcept;

  /// Reads and discards data until the peer closes the connection or the deadline passes. Blocks.
  void linger(Deadline deadline) noexcept;

 private:
  void take_header();
  template <class MakeFrame>
  void write_last(MakeFrame make_frame) noexcept;

  std::string name_;
  std::uint32_t group_;
  transport::FrameKind kind_;
  std::unique_ptr<transport::Stream> stream_;
  std::string address_;  // Peer address of the stream's socket.
  net::AnswerWatch answers_{transport::kLivenessTimeout};

  std::size_t n_written_ = 0;

  transport::FrameBytes header_{};
  std::optional<transport::Frame> frame_;
  std::size_t n_read_ = 0;
  std::vector<std::byte> abort_text_;
  std::optional<Error> abort_;  // Error of the peer.
};

/// Packets to and from a rank of another node, as frames on a separate stream. Payload moves
/// directly from and into the caller's memory. Threads and errors: PacketChannel.
class PacketStream final : public transport::PacketChannel {
 public:
  /// `name` denotes the peer in errors, e.g. "rank 3 (pid 4123 on node-a)".
  PacketStream(std::string name, std::uint32_t group, std::unique_ptr<transport::Stream> stream)
      : frames_(std::move(name), group, transport::FrameKind::kPacket, std::move(stream)) {}

  [[nodiscard]] bool send(const transport::Packet& packet,
                          std::string_view label,
                          std::span<const std::byte> payload) override;
  [[nodiscard]] const transport::Packet* peek() override;

  [[nodiscard]] std::string_view label() const override { return label_; }

  [[nodiscard]] bool take(std::span<std::byte> payload) override;

  [[nodiscard]] FrameStream& frames() { return frames_; }

  /// Returns true if the last send() did not complete because the socket was full.
  [[nodiscard]] bool is_blocked() const { return is_blocked_; }

  /// Returns true if the peer has left cleanly: no more packets arrive.
  [[nodiscard]] bool has_left() const { return has_left_; }

 private:
  [[nodiscard]] bool has_come(const net::IoResult& result);
  void take_frame(const transport::Frame& frame);
  void take_packet_fields(const transport::Frame& frame);

  FrameStream frames_;

  std::vector<std::byte> outgoing_head_;  // Head of the packet that is being sent.
  bool is_blocked_ = false;
  bool can_write_ = true;

  std::vector<std::byte> fields_;  // Fields and label of a received frame, before the payload.
  bool has_packet_ = false;
  transport::Packet packet_;
  std::string label_;
  bool has_left_ = false;
};

}  // namespace unisono::tcp
