#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/failure_log.h"
#include "unisono/comm/side_store.h"
#include "unisono/comm/stored_whereabouts.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/native/rank_status.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/shm/board.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {

class Job;

/// What makes a group of a job's ranks.
struct GroupSetup {
  std::uint32_t number = 0;   ///< The same on all its ranks; 0 is the world.
  rendezvous::Roster roster;  ///< Its members by rank in the group; they keep their job's ranks.
  std::chrono::milliseconds timeout;
  /// Where each rank of this node has its part of the board, in order of rank in the group.
  std::vector<std::int64_t> board_offsets;
};

/// How the ranks of one group reach each other, and what is known of them; with the engine on it.
/// Does not move: its parts know each other.
///
/// fail(), explain() and leave() are for the thread that drives the group; what the watcher tells
/// may come at any time.
class Links {
 public:
  /// The job outlives it.
  Links(Job& job, GroupSetup setup);

  [[nodiscard]] Job& job() { return job_; }

  [[nodiscard]] const rendezvous::Roster& roster() const { return setup_.roster; }

  [[nodiscard]] const collective::Topology& topology() const { return topology_; }

  [[nodiscard]] std::chrono::milliseconds timeout() const { return setup_.timeout; }

  [[nodiscard]] const transport::Failure& failure() const { return failure_; }

  [[nodiscard]] engine::Engine& engine() { return *engine_; }

  /// Ends the group with its first error, and tells the other ranks, once.
  void fail(const Error& error) noexcept;

  /// Tells the other nodes' ranks of the error, and returns it with what those say who failed too.
  [[nodiscard]] Error explain(const Error& error) noexcept;

  /// Tells the other ranks that this one leaves, and hears nothing more.
  void leave() noexcept;

  // From the watcher; ranks are the job's, and may be no members.
  void note_departure(int job_rank);
  void note_abort(int job_rank, const Error& reason);
  void note_death(int job_rank);
  void deliver(int job_rank, Fd socket);

 private:
  // Makes waits look again. Any thread.
  void wake() const;
  void publish(const Error& error) noexcept;

  // Rank in the group, or -1.
  [[nodiscard]] int rank_of(int job_rank) const;

  Job& job_;
  GroupSetup setup_;
  collective::Topology topology_;
  shm::Board board_;
  tcp::Mesh mesh_;
  engine::RankStatus ranks_;
  transport::Failure failure_;
  SideStore side_store_;
  FailureLog failures_;
  StoredWhereabouts whereabouts_;
  std::unique_ptr<engine::Engine> engine_;
  bool has_published_ = false;
  bool has_told_ = false;
};

}  // namespace unisono::comm
