#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/collective/topology.h"
#include "unisono/net/hello.h"
#include "unisono/peers/control_link.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/rank_table.h"

namespace unisono::peers {

class ControlPlane;

/// A group and its control connections. The references must outlive the object.
struct GroupContacts {
  std::uint32_t group;  ///< The group's number.
  const transport::RankTable& roster;
  ControlPlane& control;
};

// Reports of a failure to other ranks of a group. The monitors of these ranks receive them, so that
// they arrive while the ranks wait. Each function returns when the report is written, after half a
// second at most; a written report arrives even if this process ends. A rank that cannot be reached
// in that time gets no report.

/// Reports the group's failure to a single rank.
void notify_rank(const GroupContacts& contacts, int rank, const Error& reason) noexcept;

/// Reports the failure to the group's other ranks of this node.
void notify_node(const GroupContacts& contacts, const Error& reason) noexcept;

/// Reports the failure to a rank of each other node, which passes the report on to its node. For
/// failures that are not in the store.
void notify_other_nodes(const GroupContacts& contacts, const Error& reason) noexcept;

/// Interface of a group to the monitor of peers and to the deadlock detector: receives reports
/// about other ranks, and describes the state of this rank in the group. Implemented by the group's
/// state, and shared with GroupRegistry. Thread-safe.
class MonitoredGroup {
 public:
  MonitoredGroup() = default;
  virtual ~MonitoredGroup() = default;
  MonitoredGroup(const MonitoredGroup&) = delete;
  MonitoredGroup& operator=(const MonitoredGroup&) = delete;
  MonitoredGroup(MonitoredGroup&&) = delete;
  MonitoredGroup& operator=(MonitoredGroup&&) = delete;

  // Reports about ranks of the job, which need not be members of the group.

  /// A rank's group has failed. A rank of another node reports to a single rank of this node, which
  /// passes the report on.
  virtual void note_abort(int job_rank, const Error& reason) = 0;

  /// The process of a rank of this node has ended, or has sent an incorrect frame. Ignored after
  /// the rank has left.
  virtual void note_end(int job_rank, ControlLink::End how) = 0;

  /// A connection for the group's engine, after its handshake. If this rank cannot keep the
  /// connection, `shortage` is the reason and the group fails.
  virtual void deliver(const net::HelloInfo& peer,
                       Fd socket,
                       const std::optional<Error>& shortage) = 0;

  /// Reads packets that arrive while this rank waits for no message. Called once a second, and
  /// before this rank answers a question.
  virtual void listen_for_messages() noexcept = 0;

  /// Fails the group with an error of this rank. Allocates no memory.
  virtual void give_up(const Error& error) noexcept = 0;

  // State of this rank.

  /// Returns the error of the group, if the group has failed.
  [[nodiscard]] virtual std::optional<Error> find_failure() const = 0;

  /// Returns the progress of this rank in the group's operations; std::nullopt after this rank has
  /// left.
  [[nodiscard]] virtual std::optional<transport::RankProgress> own_progress() const = 0;

  /// Returns "is in barrier #7 of group 0.2 (ranks 0, 1)"; empty if this rank is idle in the group.
  [[nodiscard]] virtual std::string describe_activity() const = 0;

  // Waits.

  /// Returns this rank's wait with this id, or in an earlier operation; std::nullopt if there is no
  /// such wait, or if the wait has just begun. For a receive from any rank, checks which ranks of
  /// other nodes still listen.
  [[nodiscard]] virtual std::optional<transport::Stall> find_wait(
      const transport::WaitId& id) const = 0;

  /// Returns the wait of `thread` in this group.
  [[nodiscard]] virtual std::optional<transport::Stall> find_wait_of(
      std::uint64_t thread) const = 0;

  /// Returns the wait, in any group, that prevents this rank's part for `waiter`, a wait in this
  /// group; std::nullopt if a thread may still do that part, or if the part's data is in flight.
  [[nodiscard]] virtual std::optional<transport::Stall> find_stuck_wait(
      const transport::Stall& waiter) const = 0;

  /// Returns true if the group has failed. Also checks the store for failures of other ranks.
  [[nodiscard]] virtual bool has_reported_failure() noexcept = 0;

  /// Sets the deadlock as the reason of the group's failure, in place of any later error.
  virtual void set_deadlock(const Error& verdict) = 0;

  /// Fails the group with the deadlock.
  virtual void end_with(const Error& verdict) = 0;
};

/// The groups of this rank by number; passes the monitor's events to the groups, and keeps events
/// for groups that this rank is about to make.
///
/// Owned by the job. Shares ownership of the groups, so that a group lives during an event.
/// Thread-safe. give_up() makes all groups fail.
class GroupRegistry {
 public:
  /// Announces that the group of this number is about to be made. Events for it are kept from now
  /// on.
  void expect(std::uint32_t number) UNISONO_EXCLUDES(mutex_);

  /// Adds an expected group that has been made, and passes the kept events to it.
  void add(std::uint32_t number, const std::shared_ptr<MonitoredGroup>& group)
      UNISONO_EXCLUDES(mutex_);

  /// Ends the expectation of a group; does nothing if the group was made.
  void forget(std::uint32_t number) UNISONO_EXCLUDES(mutex_);

  /// Removes a group that this rank has left. `met` are the ranks with which the group had
  /// connections; `failure` is set if the group had failed.
  void end(std::uint32_t number, transport::ConnectedPeers met, std::optional<Error> failure = {})
      UNISONO_EXCLUDES(mutex_);

  /// Returns the parts of the group, operations or messages, in which no data can be in flight to
  /// `job_rank`: this rank has left the group, and had no connection with that rank. Returns
  /// neither part for a group that this rank is in or left long ago.
  [[nodiscard]] transport::Departure find_departure(std::uint32_t number, int job_rank) const
      UNISONO_EXCLUDES(mutex_);

  /// Returns the failure of a group that this rank has recently left, if the group had failed.
  [[nodiscard]] std::optional<Error> find_failure(std::uint32_t number) const
      UNISONO_EXCLUDES(mutex_);

  /// Returns the group of this number; null if this rank is not in the group.
  [[nodiscard]] std::shared_ptr<MonitoredGroup> find(std::uint32_t number) const
      UNISONO_EXCLUDES(mutex_);

  /// A report for a group. Called without a lock, and possibly destroyed without a call.
  using Event = std::function<void(MonitoredGroup&)>;

  /// Calls `event` for the group, now or when the group is made. Drops the event if the group has
  /// ended, or is not expected here.
  void notify(std::uint32_t number, Event event) UNISONO_EXCLUDES(mutex_);

  /// Calls `event` for every existing group.
  void notify_present(const Event& event) UNISONO_EXCLUDES(mutex_);

  /// Calls `event` for every existing or expected group; twice for a group that is made meanwhile.
  void notify_all(const Event& event) UNISONO_EXCLUDES(mutex_);

  /// Fails every existing and future group with the error. Allocates no memory.
  void give_up(const Error& error) noexcept UNISONO_EXCLUDES(mutex_);

 private:
  // Does not hold the lock during a visit.
  template <class Visit>
  void for_each(Visit visit) UNISONO_EXCLUDES(mutex_);

  // A group that this rank has left, with the ranks to which it had connections.
  struct Ended {
    std::uint32_t number;
    transport::ConnectedPeers met;
    std::optional<Error> failure;
  };

  [[nodiscard]] const Ended* find_ended(std::uint32_t number) const UNISONO_REQUIRES(mutex_);

  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<MonitoredGroup>> groups_ UNISONO_GUARDED_BY(mutex_);
  // Events for future groups. The world is expected from the start.
  std::map<std::uint32_t, std::vector<Event>> expected_ UNISONO_GUARDED_BY(mutex_){{0, {}}};
  // The latest groups, in the order of their ends.
  std::deque<Ended> ended_ UNISONO_GUARDED_BY(mutex_);
  // The reason for which no group can be used any more.
  std::optional<Error> end_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::peers
