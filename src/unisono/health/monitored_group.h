#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/health/control_link.h"
#include "unisono/health/rank_wait.h"
#include "unisono/net/hello.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {

/// A group of this rank as its watcher and the search for circles of waits see it: it hears what
/// becomes of other ranks, and says what this one does in it. Any thread.
class MonitoredGroup {
 public:
  MonitoredGroup() = default;
  virtual ~MonitoredGroup() = default;
  MonitoredGroup(const MonitoredGroup&) = delete;
  MonitoredGroup& operator=(const MonitoredGroup&) = delete;
  MonitoredGroup(MonitoredGroup&&) = delete;
  MonitoredGroup& operator=(MonitoredGroup&&) = delete;

  // What becomes of ranks. They are the job's, and may be no members.

  /// A rank has given up. One of another node has told this rank alone of its node: then the others
  /// hear it from here.
  virtual void note_abort(int job_rank, const Error& reason) = 0;

  /// A rank of this node speaks no more: it is gone, which is no news of one that has left, or says
  /// what it should not.
  virtual void note_end(int job_rank, ControlLink::End how) = 0;

  /// A connection for the group's engine, after its hello. `shortage` says why this rank can't keep
  /// it, if that is so, which ends the group.
  virtual void deliver(const net::HelloInfo& peer,
                       Fd socket,
                       const std::optional<Error>& shortage) = 0;

  /// Reads packets that other ranks have sent while this rank waits for no message. Called once a
  /// second, and before this rank answers a question.
  virtual void listen_for_messages() noexcept = 0;

  /// Ends the group with an error of this rank's. Takes no memory.
  virtual void give_up(const Error& error) noexcept = 0;

  // What this rank does.

  /// Why the group has failed, if it has.
  [[nodiscard]] virtual std::optional<Error> find_failure() const = 0;

  /// Where this rank is in the group's operations; nothing once it has left.
  [[nodiscard]] virtual std::optional<transport::RankProgress> own_progress() const = 0;

  /// "is in barrier #7 of group 0.2 (ranks 0, 1)"; "" for nothing.
  [[nodiscard]] virtual std::string describe_activity() const = 0;

  // Waits.

  /// This rank's wait with this id, or in an operation before it; nothing where it is in none, or
  /// has just begun. Of a receive from any rank looks who of other nodes still listens.
  [[nodiscard]] virtual std::optional<RankWait> find_wait(const WaitId& id) const = 0;

  /// The wait in this group that `thread` is in.
  [[nodiscard]] virtual std::optional<RankWait> find_wait_of(std::uint64_t thread) const = 0;

  /// In which wait, of any group, this rank is stuck, so that it can't do its part for `waiter`, a
  /// wait in this group. Nothing where it may: where a thread that waits for nothing may call what
  /// is missing, or something is on its way.
  [[nodiscard]] virtual std::optional<RankWait> find_stuck_wait(const RankWait& waiter) const = 0;

  /// Whether the group has failed, also where only the store knows that yet.
  [[nodiscard]] virtual bool has_heard_reason() noexcept = 0;

  /// From here on this is why the group fails, whatever the failure.
  virtual void hear_verdict(const Error& verdict) = 0;

  /// It fails with the verdict.
  virtual void end_with(const Error& verdict) = 0;
};

}  // namespace unisono::health
