#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/spin.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/wait_id.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/endpoint.h"
#include "unisono/transport/tcp/packet_stream.h"
#include "unisono/transport/tcp/peer_table.h"
#include "unisono/transport/waiter.h"

namespace unisono::engine {

/// Runs a group's messages beside its other operations. Thread-safe.
///
/// Whoever waits drives: threads in pass() and, for asynchronous messages, the progress thread,
/// which starts with the first of them. They look in turn, each for all; of those that have looked
/// in vain one sleeps where peers can wake it, and wakes the others when it has to.
class PointToPointProgress {
 public:
  /// The references outlive it; `has_cores`: the node has a core for each of its ranks.
  PointToPointProgress(const NativeParts& parts, GroupTransports& transports, bool has_cores);

  /// As finish().
  ~PointToPointProgress();

  PointToPointProgress(const PointToPointProgress&) = delete;
  PointToPointProgress& operator=(const PointToPointProgress&) = delete;
  PointToPointProgress(PointToPointProgress&&) = delete;
  PointToPointProgress& operator=(PointToPointProgress&&) = delete;

  /// `tell` is called, by any thread and without a lock, when messages have set the group's
  /// failure: it makes it known to the other ranks.
  void on_failure(std::function<void()> tell) UNISONO_EXCLUDES(mutex_);

  /// Passes the message and returns when it has ended: for a receive, the rank that it came from.
  /// Throws its error.
  int pass(const MessageCall& call) UNISONO_EXCLUDES(mutex_);

  /// Begins all of the messages before it goes on with any. Where the progress thread can't start
  /// the group fails.
  void begin(std::span<const MessageCall> calls) UNISONO_EXCLUDES(mutex_);

  /// The receive that `thread` waits in, while nothing of its message has come. If it is from any
  /// rank, looks who of other nodes still listens.
  [[nodiscard]] std::optional<health::RankWait> find_receive_of(std::uint64_t thread)
      UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] std::optional<health::RankWait> find_receive(const health::WaitId& id)
      UNISONO_EXCLUDES(mutex_);

  /// How many messages this rank has called to `rank`, ever.
  [[nodiscard]] std::uint64_t n_sent(int rank) UNISONO_EXCLUDES(mutex_);

  /// Reads packets that have come while this rank waited for no message: a peer's group may have
  /// failed over a message that this rank has sent before, or a peer that leaves asks for credit.
  /// Also tells the other ranks of a failure that this rank has found while it made no call. For
  /// the watcher.
  void listen() noexcept UNISONO_EXCLUDES(mutex_);

  /// Tells the ranks of other nodes that this rank's group failed, and why.
  void abort(const Error& reason) noexcept UNISONO_EXCLUDES(mutex_);

  /// Takes no more messages, and waits for those in flight until the deadline: returns whether all
  /// have ended. Receives for which nothing has come a second after the first call fail with
  /// kClosed: nobody may be left who sends.
  bool drain(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// After drain(): the ranks that have not credited all small messages of this rank, and so may
  /// still find that one does not fit its receive.
  [[nodiscard]] std::vector<int> find_debtors() UNISONO_EXCLUDES(mutex_);

  /// After drain(): asks for credit, and waits until there are no debtors, the group fails or the
  /// deadline passes. A debtor that is idle answers when its watcher calls listen().
  void await_credit(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// Waits for all, and ends the progress thread.
  void finish() UNISONO_EXCLUDES(mutex_);

  /// After finish(): tells the ranks of other nodes that this one leaves in good order, unless it
  /// has aborted.
  void leave() noexcept UNISONO_EXCLUDES(mutex_);

 private:
  using Requests = std::vector<std::unique_ptr<MessageOperation>>;

  void throw_if_closed() UNISONO_EXCLUDES(mutex_);
  void throw_if_stopping() const UNISONO_REQUIRES(mutex_);
  // Sends the message if that takes no wait; false else.
  [[nodiscard]] bool send_at_once(const MessageCall& call) UNISONO_EXCLUDES(mutex_);
  void begin(std::unique_ptr<MessageOperation> request) UNISONO_REQUIRES(mutex_);
  void post(MessageOperation& request) UNISONO_REQUIRES(mutex_);
  bool advance() UNISONO_REQUIRES(mutex_);
  void check_buffer(MessageOperation& request) const;
  [[nodiscard]] std::string name_of(const MessageOperation& request) const;
  void take_ended() UNISONO_REQUIRES(mutex_);
  template <class Step>
  bool guard(Step step) UNISONO_REQUIRES(mutex_);
  void enroll(MessageOperation& request) UNISONO_REQUIRES(mutex_);
  void finish_request(MessageOperation& request) UNISONO_REQUIRES(mutex_);
  void end_all() UNISONO_REQUIRES(mutex_);
  [[nodiscard]] Error error_of(const MessageOperation& request,
                               const Error& failure) const noexcept;
  void fail_request(MessageOperation& request, const Error& error) UNISONO_REQUIRES(mutex_);
  void give_up_receives() UNISONO_REQUIRES(mutex_);
  void note(ErrorCode code, const char* problem) noexcept UNISONO_REQUIRES(mutex_);
  // Whether the time of one of them is up now, and was not before.
  [[nodiscard]] bool check_requests() UNISONO_REQUIRES(mutex_);
  void show_waits() UNISONO_REQUIRES(mutex_);
  [[nodiscard]] health::WaitId next_id() UNISONO_REQUIRES(mutex_);

  // point_to_point_leaving.cpp
  [[nodiscard]] std::vector<int> debtors() const UNISONO_REQUIRES(mutex_);

  // point_to_point_asking.cpp
  template <class IsIt>
  [[nodiscard]] std::optional<health::RankWait> find_receive_where(IsIt is_it)
      UNISONO_EXCLUDES(mutex_);
  bool fail_overdue(std::uint64_t thread) UNISONO_REQUIRES(mutex_);
  [[nodiscard]] std::string ask(int peer) const noexcept;

  // point_to_point_waiting.cpp
  /// Asked with the lock held.
  using IsDone = std::function<bool()>;

  // `thread` as in MessageOperation: the one whose messages it waits for.
  void drive(std::uint64_t thread,
             const IsDone& is_done,
             transport::WaitMode mode,
             SpinLimit* spin_limit) UNISONO_EXCLUDES(mutex_);
  template <class Step>
  bool locked(Step step) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] Arrival spin_for(MessageOperation& request) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] Arrival receive_at_once(MessageOperation& request, int n_looks)
      UNISONO_REQUIRES(mutex_);
  bool look(const IsDone& is_done, int n_spins) UNISONO_EXCLUDES(mutex_);
  bool sleep(std::uint64_t thread, const IsDone& is_done, bool is_newcomer)
      UNISONO_EXCLUDES(mutex_);
  void watch() UNISONO_REQUIRES(mutex_);
  void sleep_until(Deadline deadline, std::uint32_t rings) UNISONO_REQUIRES(mutex_);
  [[nodiscard]] Deadline next_check() UNISONO_REQUIRES(mutex_);
  void begin_spinning() UNISONO_REQUIRES(mutex_);
  void end_spinning() UNISONO_REQUIRES(mutex_);
  void wake() const noexcept;
  void wake_watch() UNISONO_REQUIRES(mutex_);
  void start_progress() UNISONO_REQUIRES(mutex_);
  void take_all() UNISONO_REQUIRES(mutex_);
  void make_progress() UNISONO_EXCLUDES(mutex_);
  void settle_failure() UNISONO_EXCLUDES(mutex_);
  void complete(const Requests& finished) const;
  [[nodiscard]] transport::WaitMode mode_of(const MessageOperation& request) const;
  [[nodiscard]] bool needs_network(const MessageOperation& request) const;

  const NativeParts& parts_;
  bool has_cores_;
  shm::ControlBlock& control_block_;
  shm::Endpoint& endpoint_;
  tcp::PeerTable<tcp::PacketStream>& packet_streams_;
  Error out_of_memory_;         // Made while there is some.
  std::function<void()> tell_;  // Set before the first call; the watcher may be earlier.

  Mutex mutex_;
  Condition changed_;
  MessageMatcher matcher_ UNISONO_GUARDED_BY(mutex_);
  MessageWaiting waiting_;  // Its matcher is this one.
  // Those that have not ended.
  std::vector<MessageOperation*> requests_ UNISONO_GUARDED_BY(mutex_);
  std::size_t n_async_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::size_t n_networked_ UNISONO_GUARDED_BY(mutex_) = 0;
  // Ended asynchronous ones whose handles have not been told.
  Requests finished_ UNISONO_GUARDED_BY(mutex_);
  // What ended the messages, until it is the group's failure.
  std::optional<Error> error_ UNISONO_GUARDED_BY(mutex_);
  // Since it stops: when receives are given up; never, once they are.
  Deadline giving_up_ UNISONO_GUARDED_BY(mutex_) = Deadline::never();
  // Deadline of await_credit().
  Deadline credit_until_ UNISONO_GUARDED_BY(mutex_) = Deadline::never();
  std::uint64_t n_messages_ UNISONO_GUARDED_BY(mutex_) = 0;
  bool is_settling_ UNISONO_GUARDED_BY(mutex_) = false;
  bool is_stopping_ UNISONO_GUARDED_BY(mutex_) = false;
  bool is_listening_ UNISONO_GUARDED_BY(mutex_) = false;
  // One of `requests_` has waited long since, or no longer waits.
  bool have_waits_changed_ UNISONO_GUARDED_BY(mutex_) = false;
  // A thread sleeps for all, or is about to; in poll(2) if `is_polling_`.
  bool is_watched_ UNISONO_GUARDED_BY(mutex_) = false;
  bool is_polling_ UNISONO_GUARDED_BY(mutex_) = false;
  // Threads that look without a pause, so that nobody needs to wake the sleeper.
  int n_spinning_ UNISONO_GUARDED_BY(mutex_) = 0;
  // When they have ended.
  bool must_wake_watch_ UNISONO_GUARDED_BY(mutex_) = false;
  SpinLimit spin_limit_;
  std::thread progress_thread_ UNISONO_GUARDED_BY(mutex_);
};

// Unless the messages have failed; notes how they do.
template <class Step>
bool PointToPointProgress::guard(Step step) {
  if (error_) [[unlikely]] {
    return false;
  }
  try {
    return step();
  } catch (const Error& error) {
    note(error.code(), error.what());
  } catch (const std::exception& error) {
    // Out of memory, say: this rank can't take part any more, and the others must know.
    note(ErrorCode::kInternal, error.what());
  }
  return false;
}

}  // namespace unisono::engine
