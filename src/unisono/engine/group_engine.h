#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/engine/supervising_engine.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/wait_id.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/traffic.h"

namespace unisono::engine {

/// The engine that every group has, whatever its backend: by it the group's ranks reach each other
/// and see where they are. Engine's abort() and leave() are about its operations alone; messages
/// and what it has of other ranks end by calls of their own. Any thread, save where it says so.
class GroupEngine : public SupervisingEngine {
 public:
  /// Makes waits look again.
  virtual void wake() const noexcept = 0;

  /// Takes a connection that `rank` opened, after its hello, which says what it is for.
  virtual void deliver(int rank, std::string_view purpose, Fd socket) = 0;

  /// Turns one away, with the reason: the group has failed.
  virtual void turn_away(int socket, const Error& reason) const noexcept = 0;

  /// What went through the connections for operations.
  [[nodiscard]] virtual std::vector<RankTraffic> traffic() const = 0;

  /// Where a rank of this node is in the group's operations.
  [[nodiscard]] virtual transport::RankProgress progress_of(int rank) const = 0;

  /// Whether a rank of this node has announced that it leaves.
  [[nodiscard]] virtual bool is_leaving(int rank) const = 0;

  /// Where this rank is; nothing after leave_memory().
  [[nodiscard]] virtual std::optional<transport::RankProgress> own_progress() const = 0;

  /// This rank has refused a call after operation `sequence`.
  virtual void note_refused(std::uint64_t sequence, std::string_view text) = 0;

  // Messages.

  /// `tell` is called, by any thread and without a lock, when messages have set the group's
  /// failure: it makes it known to the other ranks.
  virtual void on_failed_messages(std::function<void()> tell) = 0;

  /// Reads packets that have come while this rank waited for no message.
  virtual void listen_for_messages() noexcept = 0;

  /// The receive with this id for which this rank waits, or in which `thread` does, while nothing
  /// of its message has come. If it is from any rank, looks who of other nodes still listens.
  [[nodiscard]] virtual std::optional<health::RankWait> find_receive(const health::WaitId& id) = 0;
  [[nodiscard]] virtual std::optional<health::RankWait> find_receive_of(std::uint64_t thread) = 0;

  /// How many messages this rank has called to `rank`, ever.
  [[nodiscard]] virtual std::uint64_t n_sent(int rank) = 0;

  /// Takes no more messages, and waits for those in flight until the deadline: whether all have
  /// ended. Receives for which nothing has come a second after the first call fail with kClosed:
  /// nobody may be left who sends.
  [[nodiscard]] virtual bool drain_messages(Deadline deadline) = 0;

  /// After drain_messages(): the ranks that have not confirmed all small messages of this rank, and
  /// so may still find that one does not fit its receive.
  [[nodiscard]] virtual std::vector<int> find_debtors() = 0;

  /// Waits until there are none, the group fails or the deadline passes.
  virtual void await_credit(Deadline deadline) = 0;

  /// Waits for all.
  virtual void finish_messages() = 0;

  /// Tells the ranks of other nodes that this rank's group failed, and why.
  virtual void abort_messages(const Error& reason) noexcept = 0;

  /// After finish_messages(): tells the ranks of other nodes that this one leaves in good order,
  /// unless it has aborted.
  virtual void leave_messages() noexcept = 0;

  // The end, on the thread that drives the group.

  /// The number of the last operation, if ranks may find a mismatch in it after this rank's part
  /// has ended; else 0. Sets the group's failure if a peer has reported one.
  [[nodiscard]] virtual std::uint64_t find_doubtful_operation() = 0;

  /// Tells the ranks of this node that this one leaves in good order.
  virtual void announce_leave() = 0;

  /// Ends all connections, and returns with whom there were some. Nobody delivers any more.
  [[nodiscard]] virtual health::MetRanks close() = 0;

  /// The last call: this rank looks at its peers' memory no more, nor says where it is.
  virtual void leave_memory() = 0;
};

}  // namespace unisono::engine
