#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/answer_watch.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/liveness.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {

/// Frames to and from one rank of another node. Moves bytes when told to, and never blocks. Payload
/// goes from and into the caller's memory.
///
/// write() and read() return how many bytes moved in this call, and kDone once all of them have:
/// until then call them again with the same arguments.
class FrameStream {
 public:
  /// `name` stands for the peer in errors, e.g. "rank 3 (pid 4123 on node-a)". Besides frames of
  /// `kind`, only those come with which a rank of group number `group` ends.
  FrameStream(std::string name,
              std::uint32_t group,
              transport::FrameKind kind,
              std::unique_ptr<transport::Stream> stream);

  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] transport::Stream& stream() const { return *stream_; }

  /// Writes a frame: its header, with what belongs to it, and the payload behind that.
  [[nodiscard]] net::IoResult write(std::span<const std::byte> head,
                                    std::span<const std::byte> payload) noexcept;

  /// Of the frame that is being written.
  [[nodiscard]] std::size_t n_written() const { return n_written_; }

  /// Reads until frame() is there.
  ///
  /// Throws Error: kCorruptData for what is no frame of those that may come, and the peer's own
  /// when it aborted, each time.
  [[nodiscard]] net::IoResult read_header();

  /// The frame whose header has come, and that is not finished. Null if there is none.
  [[nodiscard]] const transport::Frame* frame() const { return frame_ ? &*frame_ : nullptr; }

  /// Fills `part` with the next of the frame's payload.
  [[nodiscard]] net::IoResult read(std::span<std::byte> part) noexcept;

  /// Of the part, or header, that is being read.
  [[nodiscard]] std::size_t n_read() const { return n_read_; }

  /// All of the frame's payload was read.
  void finish_frame() { frame_.reset(); }

  /// Nothing but the reason for which the peer gave up is on its way, as far as can be seen.
  [[nodiscard]] bool may_tell_abort() const {
    return !frame_ || frame_->kind == transport::FrameKind::kAbort;
  }

  /// To be asked by who waits, about each transport::kLivenessLook: whether the peer has left what
  /// it was sent without an answer for transport::kLivenessTimeout.
  [[nodiscard]] bool is_unanswered() noexcept { return answers_.is_silent(stream_->socket()); }

  /// What a connection comes to that is_unanswered().
  static const net::IoResult kUnanswered;

  /// The error about a connection that ended with `result`, `when` says at what.
  [[nodiscard]] Error lost(const net::IoResult& result, std::string_view when) const;

  /// The error about a peer that writes what it should not: no `expected`.
  [[nodiscard]] Error corrupt(std::string_view expected) const;

  /// Tells the peer why this side's group failed, if a frame can still begin; then ends the
  /// connection. Does not block, does not throw.
  void abort(const Error& reason) noexcept;

  /// Tells the peer that this rank leaves in good order. Does not block, does not throw.
  void say_goodbye() noexcept;

  /// Takes and drops what still comes, until the peer hangs up or the deadline passes.
  void linger(Deadline deadline) noexcept;

 private:
  void take_header();
  template <class MakeFrame>
  void write_last(MakeFrame make_frame) noexcept;

  std::string name_;
  std::uint32_t group_;
  transport::FrameKind kind_;
  std::unique_ptr<transport::Stream> stream_;
  std::string address_;  // The other end of the stream's socket.
  net::AnswerWatch answers_{transport::kLivenessTimeout};

  std::size_t n_written_ = 0;

  transport::FrameBytes header_{};
  std::optional<transport::Frame> frame_;
  std::size_t n_read_ = 0;
  std::vector<std::byte> abort_text_;
  std::optional<Error> abort_;  // The peer's.
};

}  // namespace unisono::tcp
