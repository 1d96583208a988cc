#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/group_engine.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/health/group_health.h"
#include "unisono/health/rank_status.h"
#include "unisono/health/status_client.h"
#include "unisono/health/work_waits.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::engine {

/// What the native engine of a group is made of. The references outlive it, but for `offsets`.
struct GroupParts {
  std::uint32_t group;  ///< The group's number.
  const rendezvous::Roster& roster;
  const collective::Topology& topology;
  /// Where each rank of this node has the group's part of its arena, in order of rank in the group.
  const std::vector<std::int64_t>& offsets;
  transport::Failure& failure;
  const health::RankStatus& ranks;
  health::StatusClient& status;
  health::GroupHealth& health;
  const health::WorkWaits& work_waits;
  health::DiagnosticsStore& diagnostics;
};

/// What the native engines of a rank's groups share: the memory of the node, and how ranks of
/// different nodes reach each other. Makes them. Thread-safe but for meet().
class NativeEngines {
 public:
  /// Before the process starts a thread, which makes this slow.
  static void prepare_process();

  /// Throws as transport::find_streams().
  explicit NativeEngines(const Config& config);
  ~NativeEngines();

  NativeEngines(const NativeEngines&) = delete;
  NativeEngines& operator=(const NativeEngines&) = delete;
  NativeEngines(NativeEngines&&) = delete;
  NativeEngines& operator=(NativeEngines&&) = delete;

  /// Makes the node's memory with its other ranks, which have joined the job and do the same.
  /// `listener` is the Unix socket that the roster tells of; hellos are by `secret`. Returns the
  /// memory. Throws the first reason that a rank had; then `met` has the connections of this rank,
  /// whose other sides wait for that reason.
  [[nodiscard]] shm::NodeMemory meet(const rendezvous::Roster& roster,
                                     const std::string& secret,
                                     int listener,
                                     Deadline deadline,
                                     std::vector<shm::NodePeer>& met);

  /// Once the ranks have met.
  [[nodiscard]] std::shared_ptr<GroupEngine> make(const GroupParts& parts);

  /// Whether all of the buffer lies in this rank's arena.
  [[nodiscard]] bool is_symmetric(const Buffer& buffer) const;

  /// Zeroed memory for a group's transports. Returns its offset in this rank's arena; the first is
  /// at 0. Throws Error(kInvalidArgument) where there is no room.
  [[nodiscard]] std::int64_t reserve_group(int local_world_size);

  /// Gives it back: of a group that no rank has made.
  void release_group(std::int64_t offset);

  /// Gives it back once all ranks have left the group.
  void retire_group(std::int64_t offset, int local_world_size) noexcept;

 private:
  struct Shared;

  std::unique_ptr<Shared> shared_;
};

}  // namespace unisono::engine
