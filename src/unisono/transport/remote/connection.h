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
#include "unisono/transport/remote/frame_stream.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {

/// Identifies the operation of this side's frames.
struct OperationTag {
  std::uint64_t sequence;
  transport::Descriptor descriptor;
  /// For messages: blocks with sizes that ranks must agree on.
  std::span<const Buffer> blocks = {};
};

/// Transfers of collective operations to and from a rank of another node. Received payload goes
/// straight into the posted memory.
///
/// Owned by a PeerTable; used by the thread that drives the group. No call blocks: progress() moves
/// bytes and throws the errors.
class Connection {
 public:
  /// `name` denotes the peer in errors, e.g. "rank 3 (pid 4123 on node-a)". The memory of
  /// `job_ranks` must outlive the connection.
  Connection(int rank,
             std::string name,
             std::uint32_t group,
             std::unique_ptr<transport::Stream> stream,
             transport::JobRanks job_ranks = {});

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] FrameStream& frames() { return frames_; }

  /// Begins an operation: transfers in both directions are numbered from 0 again.
  void begin(const OperationTag& tag);

  /// Queues `data`, which must stay valid until the send is complete. In operations with blocks of
  /// any size, the frame also carries `n_bytes_back`: the bytes that this rank takes from the peer
  /// in return.
  void post_send(std::span<const std::byte> data, std::uint64_t n_bytes_back = 0);

  /// Queues memory for the payload of the next data frame, which must have exactly this size.
  void post_receive(std::span<std::byte> data);

  [[nodiscard]] bool is_sending() const { return !sends_.empty(); }

  [[nodiscard]] bool is_receiving() const { return !receives_.empty(); }

  /// Returns false while the next frame belongs to an operation that this rank has not reached.
  [[nodiscard]] bool can_receive() const;

  /// Sends and receives as much as possible without blocking. Returns true if any byte moved.
  ///
  /// Throws Error(kPeerLost) if the connection ends, Error(kMismatch) if the peer is in another
  /// operation, Error(kCorruptData), and the peer's own error if the peer aborted.
  bool progress();

  /// Throws Error(kPeerLost) if FrameStream::is_unanswered(). A waiting thread calls this function
  /// about every kLivenessLook.
  void check_answers();

  /// Returns true if no transfer is due on this connection and an abort frame may still arrive: the
  /// end of the stream has not been read, and no data of a later operation lies before the frame.
  [[nodiscard]] bool may_tell_abort() const;

  /// Throws the peer's error if no transfer is due and the peer has aborted.
  void look_for_abort();

  /// Returns true if this rank had transfers with the peer in the previous operation but received
  /// no data.
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
  OperationTag tag_{};  // `blocks` is valid only during an operation.

  std::deque<Send> sends_;
  std::uint32_t send_step_ = 0;
  std::uint64_t n_bytes_given_ = 0;  // Bytes of the last posted send.

  std::deque<std::span<std::byte>> receives_;
  bool is_matched_ = false;                  // The payload goes to receives_.front().
  std::optional<Deadline> explained_until_;  // Set once a later operation's frame arrives.
  std::uint32_t receive_step_ = 0;
  bool has_heard_ = true;  // True if data has arrived since begin().
  bool was_one_way_ = false;
  bool has_ended_ = false;  // The stream has ended while no transfer was due.
};

}  // namespace unisono::tcp
