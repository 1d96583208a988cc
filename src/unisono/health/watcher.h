#pragma once

#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/health/acceptor.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/node_peers.h"
#include "unisono/health/peer_watch.h"
#include "unisono/health/stack_dump.h"
#include "unisono/net/event_loop.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::health {

/// What a Watcher works with. The references outlive it.
struct WatcherParts {
  const rendezvous::Roster& roster;
  const rendezvous::StoreSession& session;
  int data_listener;
  const NodePeers& peers;
  GroupRegistry& groups;
  StackDump& stacks;
  Logger logger;
};

/// A rank's thread beside its computation: lets in the connections of other nodes' ranks, and sees
/// when a rank of this node leaves a group, fails in one, or dies. Answers ranks that ask where
/// this one is. Says so when the launcher's store ends. Where it can't go on (out of memory, say)
/// all groups of this rank fail, since what it has missed nobody tells again.
class Watcher {
 public:
  explicit Watcher(const WatcherParts& parts);
  ~Watcher();

  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  Watcher(Watcher&&) = delete;
  Watcher& operator=(Watcher&&) = delete;

 private:
  void watch() noexcept;
  void give_up(const std::exception& problem) noexcept;
  void listen_later();
  void watch_store(const WatcherParts& parts);

  net::EventLoop loop_;
  GroupRegistry& groups_;
  Error blind_;  // Made while there is memory.
  Acceptor acceptor_;
  std::vector<std::unique_ptr<PeerWatch>> watches_;
  std::thread thread_;
};

}  // namespace unisono::health
