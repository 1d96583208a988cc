#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/health/acceptor.h"
#include "unisono/health/answers.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/node_watch.h"
#include "unisono/net/event_loop.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {

/// What a Watcher works with. The references outlive it.
struct WatcherParts {
  const rendezvous::Roster& roster;
  const rendezvous::StoreSession& session;
  int data_listener;
  NodeContact contact;     ///< By what this rank reaches the others of its node.
  shm::NodeMemory memory;  ///< The node's.
  GroupRegistry& groups;
  Logger logger;
};

/// A rank's thread beside its computation: accepts the connections of other nodes' ranks, runs the
/// control plane, and sees when a rank of this node dies. Logs when the launcher's store ends.
/// Where it can't go on (out of memory, say) all groups of this rank fail, since what it has missed
/// nobody tells again.
class Watcher {
 public:
  explicit Watcher(WatcherParts parts);
  ~Watcher();

  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  Watcher(Watcher&&) = delete;
  Watcher& operator=(Watcher&&) = delete;

  /// Watches no more: the thread has ended, and with it all that it tells groups. Theirs may call
  /// control() until then.
  void stop();

  /// By which this rank speaks to others.
  [[nodiscard]] ControlPlane& control() { return control_; }

 private:
  void watch() noexcept;
  void give_up(const std::exception& problem) noexcept;
  void listen_later();
  void watch_store(const WatcherParts& parts);
  void note_end(int rank, bool is_news);

  std::shared_ptr<net::EventLoop> loop_;  // Shared with replies to other ranks, which come late.
  GroupRegistry& groups_;
  Error blind_;  // Made while there is memory.
  StackDump stacks_;
  ControlPlane control_;
  Acceptor acceptor_;
  std::vector<int> others_;  // Ranks of this node.
  NodeWatch node_watch_;
  std::thread thread_;
};

}  // namespace unisono::health
