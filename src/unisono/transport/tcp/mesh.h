#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/wakeup.h"
#include "unisono/transport/rank_address.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/opening.h"
#include "unisono/transport/traffic.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::tcp {

/// The connections of one group's rank to the ranks of other nodes: one per pair, opened when first
/// needed, by the rank that is higher in the job. All but deliver() and wake() belongs to the
/// thread that drives the group. A lower rank that waits for a higher one looks now and then
/// whether that still listens.
class Mesh {
 public:
  /// `members[r]` is rank r. `secret` and `mine` are for the hello, and `make_stream`
  /// for what comes after it. Unless the group has ranks of
  /// other nodes there is nothing to wait for, and no file descriptor is held.
  Mesh(std::vector<transport::RankAddress> members,
       std::string secret,
       net::HelloInfo mine,
       transport::MakeStream make_stream,
       bool has_other_nodes);

  /// The connection to `rank`, made now if there is none. Throws what `patience` and
  /// Opening::progress() throw.
  [[nodiscard]] Connection& connection(int rank, transport::WaitMonitor& wait_monitor);

  /// The connection to `rank`; null if there is none.
  [[nodiscard]] Connection* find(int rank) const;

  /// Begins to open the connection to `rank`, to which there is none. The mesh outlives it.
  [[nodiscard]] std::unique_ptr<Opening> begin_opening(int rank);

  /// Makes the socket that came of an Opening the connection to `rank`.
  Connection& adopt(int rank, Fd socket);

  /// Takes a connection that `rank` opened, after its hello. Any thread.
  void deliver(int rank, Fd socket) UNISONO_EXCLUDES(mutex_);

  /// Takes up what was delivered and not asked for yet, so that open_connections() has it.
  void adopt_delivered() UNISONO_EXCLUDES(mutex_);

  /// Ends all connections. Nobody delivers any more.
  void close() UNISONO_EXCLUDES(mutex_);

  /// Makes waits look again. Any thread.
  void wake() const noexcept {
    if (wakeup_) {
      wakeup_->wake();
    }
  }

  /// Becomes readable on deliver() and wake().
  [[nodiscard]] int wakeup_fd() const { return wakeup_->fd(); }

  /// Forgets the wake-ups so far.
  void clear_wakeups() const noexcept { wakeup_->clear(); }

  /// What went through the connections.
  [[nodiscard]] transport::TrafficCounters& traffic() { return traffic_; }

  [[nodiscard]] const transport::TrafficCounters& traffic() const { return traffic_; }

  /// The connections that exist.
  [[nodiscard]] std::vector<Connection*> open_connections() const;

 private:
  // Else the other rank opens the connection.
  [[nodiscard]] bool is_dialed(int rank) const;
  [[nodiscard]] Fd take_delivered(int rank) UNISONO_EXCLUDES(mutex_);

  std::vector<transport::RankAddress> members_;
  std::vector<int> job_ranks_;  // Where they differ; connections look at them.
  transport::TrafficCounters traffic_;
  std::string secret_;
  net::HelloInfo mine_;
  transport::MakeStream make_stream_;
  std::unique_ptr<net::Wakeup> wakeup_;  // Where there are other nodes.
  std::map<int, std::unique_ptr<Connection>> connections_;
  Mutex mutex_;
  std::map<int, Fd> delivered_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::tcp
