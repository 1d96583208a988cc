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
#include "unisono/engine/message_call.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/health/wait_id.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::engine {

/// What the waits of sends and receives use. The references outlive it.
struct MessageWaiting {
  const NativeParts& parts;
  const MessageMatcher& matcher;
  /// Takes up what has come in the meantime.
  std::function<void()> look_again;
};

/// A send or receive with its time limit, and the errors and reports about its wait.
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

  /// When check() is to be called next, at the latest. Time begins with the first call of the two.
  [[nodiscard]] Deadline next_check();

  /// Throws the request's error when it can't go on: its peer has left, say. Reports a stall if one
  /// is due. Notes if its time is up: it is left alone then, until expire().
  void check();

  /// Its time is up, and expire() has not been called: first who is late is asked, without a lock.
  [[nodiscard]] bool is_overdue() const { return is_overdue_; }

  /// Throws the error of a request whose time is up; `late` is what the late rank does. Empty: that
  /// could not be found out.
  [[noreturn]] void expire(const std::string& late) const;

  /// Whether it has waited for so long that the rank says so.
  [[nodiscard]] bool has_waited_long() const { return has_waited_long_; }

  /// It waits for a rank, or any, and of its message nothing has come.
  [[nodiscard]] bool is_unanswered_receive() const {
    return !is_send && source == kAnyRank && !has_ended;
  }

  /// Whether the rank may still send something: it has not left, and somebody listens for it.
  [[nodiscard]] bool may_send(int rank) const {
    return !has_departed(rank) && !waiting_.matcher.is_unreachable(rank);
  }

  health::WaitId id;

  /// The thread that does nothing else until it has ended; 0 for an asynchronous one.
  std::uint64_t thread = 0;

  /// For an asynchronous one; null when a thread waits in the call.
  std::shared_ptr<MessageHandle> handle;

  /// Why it failed.
  std::optional<Error> error;

  /// Its place among those that have not ended.
  std::optional<std::size_t> place;

 private:
  /// Thrown by the monitor, for check() alone.
  [[nodiscard]] Error timed_out(std::span<const int> late_ranks) const override;
  [[nodiscard]] std::optional<Error> departed(std::span<const int> late_ranks) const override;

  void listen() const override { waiting_.parts.health.listen(); }

  void look_into(std::span<const int> late_ranks) const override;

  [[nodiscard]] std::optional<Deadline::Clock::time_point> waited_since() const override {
    return is_attended ? WaitObserver::waited_since() : waiting_.parts.work_waits.waited_since(id);
  }

  void show(Deadline::Clock::time_point since, std::span<const int> late_ranks) const override;

  void hide() const noexcept override { waiting_.parts.health.hide_wait(id); }

  void stalled(std::chrono::milliseconds waited, std::span<const int> late_ranks) const override;

  transport::WaitMonitor& wait_monitor();
  [[nodiscard]] std::string describe_late() const;
  [[nodiscard]] std::string describe_unexpected() const;
  [[nodiscard]] bool has_departed(int rank) const;

  const MessageWaiting& waiting_;
  std::chrono::milliseconds timeout_;
  std::optional<transport::WaitMonitor> wait_monitor_;
  // A connection may be on its way when its rank leaves, so it takes two looks to find all gone.
  mutable bool were_all_gone_ = false;
  mutable bool has_waited_long_ = false;
  mutable bool is_overdue_ = false;
  std::int64_t n_seen_bytes_ = 0;  // That had moved at the last check.
};

/// Those of `requests` that have waited long, of a group with these ranks, in a phrase that follows
/// their rank's name: "waits in recv (f32[4], from rank 1, tag 3)"; asynchronous ones are "under
/// way". "" if there are none.
[[nodiscard]] std::string describe_long_waits(std::span<MessageOperation* const> requests,
                                              transport::JobRanks job_ranks);

}  // namespace unisono::engine
