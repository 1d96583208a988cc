#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/engine/native/point_to_point/pending_messages.h"
#include "unisono/engine/native/point_to_point/sleep_state.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/wait.h"

namespace unisono::engine {

/// Runs a group's messages, independent of the group's other operations: the calls, the loop in
/// which threads wait, and the progress thread. PendingMessages has the messages under way, and
/// SleepState wakes the thread that sleeps.
///
/// Any waiting thread makes progress for all messages: a thread in pass() or, for asynchronous
/// messages, the progress thread, which starts with the first asynchronous message. At most a
/// single thread sleeps in poll(2) or a futex, where peers can wake it; that thread wakes the other
/// threads, which wait on a condition. A thread whose message has timed out asks the late rank for
/// its state, without the lock, before the message fails.
///
/// Owned by NativeEngine; the destructor waits for all messages. Thread-safe. The first error ends
/// all messages and becomes the group's failure.
class PointToPointProgress {
 public:
  /// The references must outlive the object. `has_cores`: the node has a core for each of its
  /// ranks.
  PointToPointProgress(const NativeParts& parts, GroupTransports& transports, bool has_cores);

  /// Calls finish().
  ~PointToPointProgress();

  PointToPointProgress(const PointToPointProgress&) = delete;
  PointToPointProgress& operator=(const PointToPointProgress&) = delete;
  PointToPointProgress(PointToPointProgress&&) = delete;
  PointToPointProgress& operator=(PointToPointProgress&&) = delete;

  /// Sets the callback that reports the group's failure to the other ranks. Any thread may call
  /// `report`, without a lock, after messages have set the failure.
  void on_failure(std::function<void()> report) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    report_failure_ = std::move(report);
  }

  /// Passes the message and returns when it has ended. Returns the sending rank of a receive.
  /// Throws the error of the message.
  int pass(const MessageCall& call) UNISONO_EXCLUDES(mutex_);

  /// Begins all messages before any of them progresses. If the progress thread can't start, the
  /// group fails.
  void begin(std::span<const MessageCall> calls) UNISONO_EXCLUDES(mutex_);

  /// Returns the receive in which `thread` blocks; std::nullopt if there is no such receive or a
  /// message has matched it. For a receive from any rank, also determines the ranks of other nodes
  /// that can no longer send.
  [[nodiscard]] std::optional<transport::Stall> find_receive_of(std::uint64_t thread)
      UNISONO_EXCLUDES(mutex_) {
    return find_receive_where([thread](const auto& receive) { return receive.thread == thread; });
  }

  /// Like find_receive_of(), for the receive with this id.
  [[nodiscard]] std::optional<transport::Stall> find_receive(const transport::WaitId& id)
      UNISONO_EXCLUDES(mutex_) {
    return find_receive_where([&id](const auto& receive) { return receive.id == id; });
  }

  /// Returns the number of messages that this rank has sent to `rank`, including those in flight.
  [[nodiscard]] std::uint64_t n_sent(int rank) UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return pending_.matcher().n_sent(rank);
  }

  /// Reads packets that arrived while this rank waited for no message: a peer's group may have
  /// failed because of an earlier message of this rank, or a peer that leaves asks for credit. Also
  /// reports a failure that this rank found between its calls to the other ranks. Called by the
  /// monitor thread.
  void listen() noexcept UNISONO_EXCLUDES(mutex_);

  /// Sends the failure of this rank's group and its reason to the ranks of other nodes.
  void abort(const Error& reason) noexcept UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    pending_.abort(reason);
  }

  /// Refuses new messages, and waits until the deadline for the messages in flight. Returns whether
  /// all have ended. Receives that no message has matched 1 s after the first call fail with
  /// kClosed, because all senders may have left.
  bool drain(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// After drain(): returns the ranks that have not credited all small messages of this rank. Such
  /// a rank may still find that a message does not fit its receive.
  [[nodiscard]] std::vector<int> find_debtors() UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return pending_.find_debtors();
  }

  /// After drain(): asks for credit, and waits until there are no debtors, the group fails or the
  /// deadline passes. An idle debtor answers when its monitor calls listen().
  void await_credit(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// Waits for all messages, and ends the progress thread.
  void finish() UNISONO_EXCLUDES(mutex_);

  /// After finish(): announces to the ranks of other nodes that this rank leaves cleanly, unless it
  /// has aborted.
  void leave() noexcept UNISONO_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    pending_.leave();
  }

 private:
  // Called with the lock held.
  using IsDone = std::function<bool()>;

  void throw_if_closed() const;

  void throw_if_stopping() const UNISONO_REQUIRES(mutex_) {
    if (is_stopping_) [[unlikely]] {
      throw Error(ErrorCode::kClosed, "the process group was destroyed");
    }
  }

  [[nodiscard]] Arrival spin_for(MessageOperation& receive) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] transport::WaitMode mode_of(const MessageOperation& operation) const;

  // Waits. `thread` is the thread that waits for its messages, as in MessageOperation.
  void drive(std::uint64_t thread,
             const IsDone& is_done,
             transport::WaitMode mode,
             SpinLimit* spin_limit) UNISONO_EXCLUDES(mutex_);
  template <class Step>
  bool locked(Step step) UNISONO_EXCLUDES(mutex_);
  bool poll(const IsDone& is_done, int n_polls) UNISONO_EXCLUDES(mutex_);
  bool sleep(std::uint64_t thread, const IsDone& is_done, bool is_newcomer)
      UNISONO_EXCLUDES(mutex_);
  void sleep_for_all() UNISONO_REQUIRES(mutex_);
  void end_spinning() UNISONO_REQUIRES(mutex_);
  void make_progress() UNISONO_EXCLUDES(mutex_);

  // Late messages and failures.
  bool fail_overdue(std::uint64_t thread) UNISONO_REQUIRES(mutex_);
  [[nodiscard]] std::string ask(int peer) const noexcept;
  [[nodiscard]] std::optional<transport::Stall> find_receive_where(
      const PendingMessages::Predicate& is_it) UNISONO_EXCLUDES(mutex_);
  void settle_failure() UNISONO_EXCLUDES(mutex_);

  const NativeParts& parts_;
  bool has_cores_;
  // Set before the first message. The monitor may call listen() before that.
  std::function<void()> report_failure_;

  Mutex mutex_;
  // Notified when operations have ended or become overdue, when asynchronous operations have begun,
  // when the sleeper has woken, and when is_stopping_ or is_listening_ has changed.
  Condition changed_;
  PendingMessages pending_ UNISONO_GUARDED_BY(mutex_);
  SleepState sleep_state_ UNISONO_GUARDED_BY(mutex_);
  MessageWaiting waiting_;  // Refers to pending_.
  // Set while draining: time at which unmatched receives fail. Never after that.
  Deadline cancel_receives_at_ UNISONO_GUARDED_BY(mutex_) = Deadline::never();
  bool is_settling_ UNISONO_GUARDED_BY(mutex_) = false;
  bool is_stopping_ UNISONO_GUARDED_BY(mutex_) = false;
  bool is_listening_ UNISONO_GUARDED_BY(mutex_) = false;
  // Relaxed atomics: all threads in pass() read and adapt the limit, and any value is valid.
  SpinLimit spin_limit_;
  std::thread progress_thread_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::engine
