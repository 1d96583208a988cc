#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/net/event_loop.h"
#include "unisono/peers/acceptor.h"
#include "unisono/peers/control_plane.h"
#include "unisono/peers/group_registry.h"
#include "unisono/peers/node_peers.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::peers {

/// Logs the stacks of this rank's threads when another rank waits for this rank. Thread-safe.
class StackDump {
 public:
  explicit StackDump(base::Logger logger);

  /// Logs the stacks if debug logging is enabled, at most once in two seconds, because many ranks
  /// may wait for the same rank.
  void show(int asking_rank) noexcept UNISONO_EXCLUDES(mutex_);

 private:
  base::Logger logger_;
  Mutex mutex_;
  Deadline next_ UNISONO_GUARDED_BY(mutex_);
};

/// Handles a control frame of another rank: answers a question, and passes a report to its group,
/// now or as soon as the group is made. Returns false for a frame that no correct rank sends. Runs
/// on the monitor thread and does not block.
[[nodiscard]] bool answer(const IncomingFrame& heard, GroupRegistry& groups, StackDump& stacks);

/// Constructor arguments of a PeerMonitor. The references must outlive the monitor.
struct PeerMonitorParts {
  const transport::RankTable& roster;
  const std::string& secret;  ///< The job's secret; empty on loopback without a secret.
  int store_fd;               ///< Connection to a store whose end is logged; -1 without a store.
  int data_listener;
  NodeContact contact;     ///< Resources for control frames on this node.
  shm::NodeMemory memory;  ///< The memory of the node.
  GroupRegistry& groups;
  base::Logger logger;
};

/// Monitors the other ranks on a thread of its own, independent of the rank's computation: accepts
/// connections of other nodes' ranks, runs the control plane, detects the death of ranks of this
/// node, and logs the end of the launcher's store.
///
/// Owned by the job. If the thread cannot continue, for example for lack of memory, all groups of
/// this rank fail, because lost events are not resent.
class PeerMonitor {
 public:
  /// Starts the monitor thread. Throws Error if the thread or its event loop can't start.
  explicit PeerMonitor(PeerMonitorParts parts);
  ~PeerMonitor();

  PeerMonitor(const PeerMonitor&) = delete;
  PeerMonitor& operator=(const PeerMonitor&) = delete;
  PeerMonitor(PeerMonitor&&) = delete;
  PeerMonitor& operator=(PeerMonitor&&) = delete;

  /// Stops monitoring: joins the thread, after which the groups receive no more events. Threads of
  /// groups may call control() until then.
  void stop();

  /// Returns the control connections to other ranks.
  [[nodiscard]] ControlPlane& control() { return control_; }

 private:
  void watch() noexcept;
  void give_up(const std::exception& problem) noexcept;
  void listen_later();
  void watch_store(const PeerMonitorParts& parts);
  void note_end(int rank, bool is_news);

  std::shared_ptr<net::EventLoop> loop_;  // Shared with replies, which may come late.
  GroupRegistry& groups_;
  Error blind_;  // Created in advance, while memory is available.
  StackDump stacks_;
  ControlPlane control_;
  Acceptor acceptor_;
  std::vector<int> others_;  // Ranks of this node.
  NodeWatch node_watch_;
  std::thread thread_;
};

}  // namespace unisono::peers
