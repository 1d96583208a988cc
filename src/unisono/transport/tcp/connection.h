#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/io.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/frame_stream.h"

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
  /// looks at outlives it.
  Connection(int rank,
             std::string name,
             std::uint32_t group,
             std::unique_ptr<transport::Stream> stream,
             transport::JobRanks job_ranks = {});

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] FrameStream& frames() { return frames_; }

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

  /// To be asked by who waits, about each kLivenessLook. Throws Error(kPeerLost) if
  /// FrameStream::is_unanswered().
  void check_answers();

  /// Whether the peer may still tell, where nothing is due from it, that it gave up: its end has
  /// not been read, and no data of a later operation lies before it.
  [[nodiscard]] bool may_tell_abort() const;

  /// Where nothing is due: throws the peer's own error if it has aborted.
  void look_for_abort();

  /// Whether this rank sent something in the operation before, and heard nothing from the peer.
  [[nodiscard]] bool was_one_way() const { return was_one_way_; }

 private:
  struct Send {
    transport::FrameBytes header;
    std::span<const std::byte> data;
  };

  bool progress_sends();
  bool progress_receives();
  [[nodiscard]] bool has_come(const net::IoResult& result);
  [[nodiscard]] Error lost(const net::IoResult& result) const;
  void match_data_frame(const transport::Frame& frame);
  [[nodiscard]] bool is_of_this_operation(const transport::Frame& frame) const;
  void check_sizes(const transport::Frame& frame) const;
  [[nodiscard]] Error mismatch(const transport::Frame& frame) const;

  int rank_;
  FrameStream frames_;
  transport::JobRanks job_ranks_;
  OperationTag tag_{};  // Its blocks dangle between operations: only an operation looks at them.

  std::deque<Send> sends_;
  std::uint32_t send_step_ = 0;
  std::uint64_t n_bytes_given_ = 0;  // In the last send that was posted.

  std::deque<std::span<std::byte>> receives_;
  bool is_matched_ = false;                  // The frame's payload goes to the first of receives_.
  std::optional<Deadline> explained_until_;  // The frame is of a later operation than is due.
  std::uint32_t receive_step_ = 0;
  bool has_heard_ = true;  // Since begin().
  bool was_one_way_ = false;
  bool has_ended_ = false;  // Nothing more comes, and nothing was due.
};

}  // namespace unisono::tcp
