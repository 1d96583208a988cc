#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/failure_log.h"
#include "unisono/comm/messenger.h"
#include "unisono/comm/watcher.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/rank_status.h"
#include "unisono/engine/native/symmetric_memory.h"
#include "unisono/rendezvous/env.h"
#include "unisono/rendezvous/meet.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/shm/mailbox.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/message_mesh.h"

namespace unisono::comm {

/// How a rank starts its job.
struct JobOptions {
  Config config;
  rendezvous::EnvAssignment assignment;
  std::chrono::milliseconds timeout;
  std::uint64_t generation = 0;
};

/// A rank's membership of a job: everything between the rendezvous and the end, with one engine on
/// it. Not copyable, does not move: its parts know each other.
class Job {
 public:
  /// Meets the other ranks. Throws as create_process_group() does.
  explicit Job(const JobOptions& options);

  [[nodiscard]] const rendezvous::Roster& roster() const { return roster_; }

  [[nodiscard]] const collective::Topology& topology() const { return topology_; }

  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

  [[nodiscard]] const transport::Failure& failure() const { return failure_; }

  [[nodiscard]] engine::Engine& engine() { return *engine_; }

  [[nodiscard]] Messenger& messenger() { return *messenger_; }

  /// Ends the job with its first error, and tells the other ranks, once. From the thread that
  /// drives the engine, as leave().
  void fail(const Error& error) noexcept;

  /// Tells the other nodes' ranks of the error, and returns it with what those say who failed too.
  /// Any thread.
  [[nodiscard]] Error explain(const Error& error) noexcept;

  /// Tells the other ranks that this one leaves, and stops watching them.
  void leave() noexcept;

 private:
  Job(const JobOptions& options, Deadline deadline);

  // Makes waits look again. Any thread.
  void wake() const;
  void publish(const Error& error) noexcept;

  // In the order in which ranks come to know each other: each member is made from those above it.
  std::chrono::milliseconds timeout_;
  rendezvous::Meeting meeting_;
  std::string endpoint_;
  Fd node_listener_;
  Fd data_listener_;
  std::shared_ptr<engine::SymmetricMemory> memory_;
  rendezvous::Roster roster_;
  collective::Topology topology_;
  std::vector<shm::NodePeer> peers_;
  shm::Board board_;
  tcp::Mesh mesh_;
  Buffer mailbox_memory_;
  shm::Mailbox mailbox_;
  tcp::MessageMesh message_mesh_;
  engine::RankStatus ranks_;
  transport::Failure failure_;
  FailureLog failures_;
  std::atomic<bool> has_published_ = false;
  bool has_told_ = false;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Messenger> messenger_;
  std::unique_ptr<Watcher> watcher_;
};

}  // namespace unisono::comm
