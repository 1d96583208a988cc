#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/health/control_plane.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::engine {

/// The memory that the ranks of a node share: this rank's arena, those of the others, and the parts
/// of it that groups have for their transports. Thread-safe but for meet().
class NodeMemory {
 public:
  /// Before the process starts a thread, which makes this slow.
  static void prepare_process();

  /// Makes this rank's arena; 0 for the default size. Throws Error(kSystem).
  explicit NodeMemory(std::int64_t n_bytes);

  /// Exchanges arenas with the node's other ranks, which have joined the job and do the same.
  /// `listener` is the Unix socket that the roster tells of. Adds them to `met`, with the sockets
  /// by which they hear of each other. Throws as shm::meet_node(); then some are in `met`.
  void meet(const rendezvous::Roster& roster,
            const std::string& secret,
            int listener,
            Deadline deadline,
            std::vector<health::NodePeer>& met);

  /// What this rank allocates from.
  [[nodiscard]] const std::shared_ptr<SymmetricMemory>& own() const { return own_; }

  /// What begins at `offset_bytes` of the arena of a rank of this node.
  [[nodiscard]] ArenaPart part_of(int job_rank, std::int64_t offset_bytes) const;

  /// Zeroed memory for a group's transports. Returns its offset in this rank's arena; the first is
  /// at 0. Throws Error(kInvalidArgument) where there is no room.
  [[nodiscard]] std::int64_t reserve_group(int local_world_size) UNISONO_EXCLUDES(mutex_);

  /// Gives it back once all ranks have left the group.
  void retire_group(std::int64_t offset, int local_world_size) noexcept UNISONO_EXCLUDES(mutex_);

 private:
  struct Retired {
    std::int64_t offset;
    int local_world_size;
  };

  void free_retired() UNISONO_REQUIRES(mutex_);

  std::shared_ptr<SymmetricMemory> own_;
  int rank_ = 0;                                             // Of the job.
  std::map<int, std::shared_ptr<const shm::Arena>> others_;  // By rank of the job.
  Mutex mutex_;
  // Peers may still look at them.
  std::vector<Retired> retired_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::engine
