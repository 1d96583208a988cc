#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/wait.h"

namespace unisono::engine {

/// References shared by the waits of all sends and receives. They must outlive the waits.
struct MessageWaiting {
  const NativeParts& parts;
  const MessageMatcher& matcher;
  /// Processes the messages that have arrived in the meantime.
  std::function<void()> poll_again;
};

/// A send or receive with a time limit; builds the errors and reports about the wait.
///
/// A blocking call has the operation on the stack; PendingMessages owns an asynchronous operation.
/// The mutex of PointToPointProgress protects both until they have ended.
class MessageOperation final : public Message, private transport::WaitObserver {
 public:
  MessageOperation(const MessageCall& call, const MessageWaiting& waiting)
      : Message{.is_send = call.is_send,
                .peer = call.peer,
                .tag = call.tag,
                .buffer = call.buffer,
                .label = call.label},
        handle(call.handle),
        waiting_(waiting),
        timeout_(call.timeout) {}

  /// "send (f32[4], to rank 1, tag 3) of weights", with the ranks of the job.
  [[nodiscard]] std::string text() const { return describe(*this, group().job_ranks); }

  /// Returns whether the message may use a connection to another node.
  [[nodiscard]] bool needs_network() const {
    const collective::Topology& topology = group().topology;
    return topology.n_nodes() > 1 &&
           (peer == kAnyRank || topology.node_of(peer) != topology.node());
  }

  /// For an asynchronous operation: sets a check that finds accesses to the buffer from now until a
  /// thread waits for the operation. A receive writes into other memory in the meantime.
  void guard_buffer();

  /// For an asynchronous operation that has ended: releases the buffer and completes the handle.
  /// Called once, without a lock.
  void complete();

  /// Returns the latest time of the next check(). The time limit begins with the first call of
  /// either function.
  [[nodiscard]] Deadline next_check();

  /// Throws the operation's error if the operation can't continue, for example because its peer has
  /// left. Reports a stall that is due. If the time limit has passed, only records this; expire()
  /// throws the error.
  void check();

  /// Returns whether the time limit has passed without a call of expire(). Before that call the
  /// late rank is queried without the lock.
  [[nodiscard]] bool is_overdue() const { return is_overdue_; }

  /// Throws the timeout error. `late` describes the state of the late rank; empty if that is
  /// unknown.
  [[noreturn]] void expire(const std::string& late) const;

  /// Returns whether the wait is long enough for the rank to publish it.
  [[nodiscard]] bool has_waited_long() const { return has_waited_long_; }

  /// Returns whether this is a receive that no message has matched yet.
  [[nodiscard]] bool is_unanswered_receive() const {
    return !is_send && source == kAnyRank && !has_ended;
  }

  /// Returns whether the rank may still send a message: it has not left, and is reachable.
  [[nodiscard]] bool may_send(int rank) const {
    return !has_departed(rank) && !waiting_.matcher.is_unreachable(rank);
  }

  transport::WaitId id;

  /// The thread that blocks until the end; 0 for an asynchronous operation.
  std::uint64_t thread = 0;

  /// Handle of an asynchronous operation; null if a thread waits in the call.
  std::shared_ptr<MessageHandle> handle;

  /// Set if the operation has failed.
  std::optional<Error> error;

  /// Index among the operations that have not ended.
  std::optional<std::size_t> place;

 private:
  /// Called by the monitor, which throws the error; check() catches it.
  [[nodiscard]] Error timed_out(std::span<const int> late_ranks) const override;
  [[nodiscard]] std::optional<Error> departed(std::span<const int> late_ranks) const override;

  void listen() const override { group().events.check_peers(); }

  void look_into(std::span<const int> late_ranks) const override;

  [[nodiscard]] std::optional<Deadline::Clock::time_point> waited_since() const override {
    return is_attended ? WaitObserver::waited_since() : group().events.blocked_since(id);
  }

  void show(Deadline::Clock::time_point since, std::span<const int> late_ranks) const override;

  void hide() const noexcept override { group().events.hide_wait(id); }

  void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const override;

  transport::WaitMonitor& wait_monitor();
  [[nodiscard]] std::string describe_late() const;
  [[nodiscard]] std::string describe_unexpected() const;
  [[nodiscard]] bool has_departed(int rank) const;

  [[nodiscard]] const GroupContext& group() const { return waiting_.parts.group; }

  const MessageWaiting& waiting_;
  std::chrono::milliseconds timeout_;
  std::optional<transport::WaitMonitor> wait_monitor_;
  // A connection may be in progress when its rank leaves, so two checks must find all ranks gone.
  mutable bool were_all_gone_ = false;
  mutable bool has_waited_long_ = false;
  mutable bool is_overdue_ = false;
  std::int64_t n_seen_bytes_ = 0;  // Value of n_moved_bytes at the last check.
};

/// Describes the operations that have waited long, in a phrase that follows the rank's name: "waits
/// in recv (f32[4], from rank 1, tag 3)"; asynchronous operations are "under way". Returns "" if no
/// operation has waited long. `job_ranks` are the ranks of the group.
[[nodiscard]] std::string describe_long_waits(std::span<MessageOperation* const> operations,
                                              transport::JobRanks job_ranks);

}  // namespace unisono::engine
