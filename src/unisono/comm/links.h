#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/failure_log.h"
#include "unisono/comm/inquirer.h"
#include "unisono/comm/messenger.h"
#include "unisono/comm/refused_call.h"
#include "unisono/comm/side_store.h"
#include "unisono/comm/stored_whereabouts.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/rank_status.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/shm/mailbox.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/message_mesh.h"
#include "unisono/transport/traffic.h"

namespace unisono::comm {

class Job;

/// What makes a group of a job's ranks.
struct GroupSetup {
  std::uint32_t number = 0;   ///< The same on all its ranks; 0 is the world.
  rendezvous::Roster roster;  ///< Its members by rank in the group; they keep their job's ranks.
  std::chrono::milliseconds timeout;
  /// Where each rank of this node has the group's part of its arena, in order of rank in the group.
  std::vector<std::int64_t> offsets;
};

/// How the ranks of one group reach each other, and what is known of them; with the engine on it.
/// Does not move: its parts know each other.
///
/// fail() and leave() are for the thread that drives the group; explain() and what the watcher
/// tells may come from any.
class Links {
 public:
  /// Bytes of a group's part of a rank's arena: its board, and its mailbox behind that.
  [[nodiscard]] static std::int64_t n_arena_bytes(int local_world_size);

  /// The job outlives it.
  Links(Job& job, GroupSetup setup);

  [[nodiscard]] Job& job() { return job_; }

  [[nodiscard]] const rendezvous::Roster& roster() const { return setup_.roster; }

  [[nodiscard]] const collective::Topology& topology() const { return topology_; }

  /// What messages of this rank begin with.
  [[nodiscard]] const std::string& prefix() const { return ranks_.prefix(); }

  /// What its ranks are called in the job, where that differs.
  [[nodiscard]] transport::JobRanks job_ranks() const { return ranks_.job_ranks(); }

  [[nodiscard]] std::chrono::milliseconds timeout() const { return setup_.timeout; }

  [[nodiscard]] const transport::Failure& failure() const { return failure_; }

  [[nodiscard]] std::vector<RankTraffic> traffic() const { return mesh_.traffic().read(); }

  [[nodiscard]] engine::Engine& engine() { return *engine_; }

  [[nodiscard]] Messenger& messenger() { return *messenger_; }

  /// Notes the number of the last operation that was called.
  void note_call(std::uint64_t sequence) { n_calls_.store(sequence, std::memory_order_relaxed); }

  /// The error of a call whose arguments are wrong. Until the next collective operation, whoever
  /// waits for this rank says that it refused the call. Any thread.
  [[nodiscard]] RefusedCall refuse(const std::string& call, const std::string& problem);

  /// Ends the group with its first error, and tells the other ranks, once.
  void fail(const Error& error) noexcept;

  /// Tells the other nodes' ranks of the error, and returns it with what those say who failed too.
  [[nodiscard]] Error explain(const Error& error) noexcept;

  /// Tells the other ranks that this one leaves, and hears nothing more.
  void leave() noexcept;

  // From the watcher (links_watcher.cpp); ranks are the job's, and may be no members.
  void note_departure(int job_rank);
  void note_abort(int job_rank, const Error& reason);
  void note_death(int job_rank);
  /// The message is the rank's name and `what` it did.
  void note_failure(int job_rank, ErrorCode code, const std::string& what);
  void deliver(const net::HelloInfo& visitor, Fd socket);

 private:
  // Makes waits look again. Any thread.
  void wake() const;
  void publish(const Error& error, bool will_read) noexcept;

  // Asks a late rank what it does.
  void ask(int rank) noexcept;

  // Tells a rank of another node why this one gives up.
  void warn(int rank, const Error& reason) noexcept;

  // The job's ranks with which there is a connection.
  [[nodiscard]] std::set<int> met_ranks() const;

  // links_watcher.cpp
  // Rank in the group, or -1.
  [[nodiscard]] int rank_of(int job_rank) const;

  // What this rank does in this group: "is in barrier #7 of group 2 (ranks 0, 1)"; "" for nothing.
  [[nodiscard]] std::string describe_activity() const;

  // The same of its other groups, as far as a note has room; what it gave up in comes last.
  [[nodiscard]] std::string describe_elsewhere();

  Job& job_;
  GroupSetup setup_;
  collective::Topology topology_;
  bool has_cores_;  // For each of the node's ranks.
  shm::Board board_;
  tcp::Mesh mesh_;
  shm::Mailbox mailbox_;
  tcp::MessageMesh message_mesh_;
  Inquirer inquirer_;
  engine::RankStatus ranks_;
  transport::Failure failure_;
  SideStore side_store_;
  FailureLog failures_;
  StoredWhereabouts whereabouts_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Messenger> messenger_;
  std::atomic<std::uint64_t> n_calls_ = 0;  // Relaxed: it orders nothing else.
  std::atomic<bool> has_published_ = false;
  bool has_told_ = false;
};

}  // namespace unisono::comm
