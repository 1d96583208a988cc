#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/answer_watch.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/liveness.h"

namespace unisono::tcp {

/// Which operation frames belong to, on this side.
struct OperationTag {
  std::uint64_t sequence;
  transport::Descriptor descriptor;
  std::span<const Buffer> blocks = {};  ///< For messages: those whose sizes ranks must agree on.
};

/// Frames to and from one rank of another node. Moves bytes when told to, and never blocks.
/// Received payload goes straight into the memory posted for it.
class Connection {
 public:
  /// `name` stands for the peer in errors, e.g. "rank 3 (pid 4123 on node-a)". What `job_ranks`
  /// looks at outlives it. `is_dialed`: this rank opened it, and the peer may not have taken it.
  Connection(int rank,
             std::string name,
             std::uint32_t group,
             std::unique_ptr<transport::Stream> stream,
             transport::JobRanks job_ranks = {},
             bool is_dialed = false);

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] transport::Stream& stream() const { return *stream_; }

  /// Begins an operation: transfers are numbered from 0 again, in both directions.
  void begin(const OperationTag& tag);

  /// Queues `data`, which stays until the send is done. Where blocks are of any size, the peer is
  /// told that `n_bytes_back` of its bytes are taken in turn.
  void post_send(std::span<const std::byte> data, std::uint64_t n_bytes_back = 0);

  /// Queues memory for the next data frame, which must have just this size.
  void post_receive(std::span<std::byte> data);

  [[nodiscard]] bool is_sending() const { return !sends_.empty(); }

  [[nodiscard]] bool is_receiving() const { return !receives_.empty(); }

  /// False while a frame waits for an operation that this rank has not come to.
  [[nodiscard]] bool can_receive() const;

  /// Sends and receives what is possible now; returns whether any byte moved.
  ///
  /// Throws Error: kPeerLost when the connection ends, kMismatch when the peer is in another
  /// operation, kCorruptData, and the peer's own error when it aborted.
  bool progress();

  /// To be asked by who waits, about each kLivenessLook. Throws Error(kPeerLost) if the peer has
  /// left what it was sent without an answer for kLivenessTimeout.
  void check_answers();

  /// Whether the peer may still tell, where nothing is due from it, that it gave up: its end has
  /// not been read, and no data of a later operation lies before it.
  [[nodiscard]] bool may_tell_abort() const;

  /// Where nothing is due: throws the peer's own error if it has aborted.
  void look_for_abort();

  /// Whether this rank sent something in the operation before, and heard nothing from the peer.
  [[nodiscard]] bool was_one_way() const { return was_one_way_; }

  /// Tells the peer why this side's group failed, if a frame can still begin; then ends the
  /// connection. Does not block, does not throw.
  void abort(const Error& reason) noexcept;

  /// Tells the peer that this rank leaves in good order. Does not block, does not throw.
  void say_goodbye() noexcept;

  /// Takes and drops what still comes, until the peer hangs up or the deadline passes.
  void linger(Deadline deadline) noexcept;

 private:
  struct Send {
    transport::FrameBytes header;
    std::span<const std::byte> data;
  };

  bool progress_sends();
  bool progress_receives();
  [[nodiscard]] std::size_t receive_some(std::span<std::byte> into);
  [[nodiscard]] Error lost(const std::string& how) const;
  [[nodiscard]] Error not_taken() const;
  void take_header();
  void match_data_frame(const transport::Frame& frame);
  [[nodiscard]] bool is_of_this_operation(const transport::Frame& frame) const;
  void check_sizes(const transport::Frame& frame) const;
  [[nodiscard]] Error mismatch(const transport::Frame& frame) const;
  [[noreturn]] void finish_control_frame(const transport::Frame& frame);

  int rank_;
  std::string name_;
  std::uint32_t group_;
  std::unique_ptr<transport::Stream> stream_;
  transport::JobRanks job_ranks_;
  std::string address_;  // The other end of the stream's socket.
  net::AnswerWatch answers_{kLivenessTimeout};
  OperationTag tag_{};  // Its blocks dangle between operations: only an operation looks at them.

  std::deque<Send> sends_;
  std::size_t n_sent_ = 0;  // Of the first send, header included.
  std::uint32_t send_step_ = 0;
  std::uint64_t n_bytes_given_ = 0;  // In the last send that was posted.

  std::deque<std::span<std::byte>> receives_;
  transport::FrameBytes header_{};
  std::size_t n_header_ = 0;
  std::optional<transport::Frame>
      frame_;                // Header is complete; payload is awaited or has no taker yet.
  bool is_matched_ = false;  // The frame's payload goes to the first of receives_.
  std::optional<Deadline> explained_until_;  // The frame is of a later operation than is due.
  std::size_t n_received_ = 0;               // Of the frame's payload.
  std::vector<std::byte> control_;           // Payload of a control frame.
  std::uint32_t receive_step_ = 0;
  bool has_heard_ = true;  // Since begin().
  bool was_one_way_ = false;
  bool has_ended_ = false;  // Nothing more comes, and nothing was due.
  bool may_be_untaken_;     // It was dialed, and nothing has come yet.
};

}  // namespace unisono::tcp
