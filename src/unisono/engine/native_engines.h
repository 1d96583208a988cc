#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/engine/group_engine.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::engine {

/// Makes the native engines of a rank's groups, and owns their shared resources: the memory of the
/// node, and the streams between nodes. Outlives the engines. Thread-safe except for meet().
class NativeEngines {
 public:
  /// Registers the process for asymmetric memory fences. Must be called before the process starts a
  /// thread, because registration is slow afterwards.
  static void prepare_process();

  /// Throws like transport::find_streams().
  explicit NativeEngines(const base::Config& config);
  ~NativeEngines();

  NativeEngines(const NativeEngines&) = delete;
  NativeEngines& operator=(const NativeEngines&) = delete;
  NativeEngines(NativeEngines&&) = delete;
  NativeEngines& operator=(NativeEngines&&) = delete;

  /// Creates the node's shared memory together with the other ranks of the node, which have joined
  /// the job and call meet() too. `listener` is the Unix socket that the roster names; `secret`
  /// authenticates the hellos. Returns the memory.
  ///
  /// Throws the first error of any rank. `met` then holds the connections of this rank to peers
  /// that wait for that error.
  [[nodiscard]] shm::NodeMemory meet(const transport::RankTable& roster,
                                     const std::string& secret,
                                     int listener,
                                     Deadline deadline,
                                     std::vector<shm::NodePeer>& met);

  /// Makes the engine of a group after the ranks have met. `offsets` locate the group's memory in
  /// the arenas of this node's ranks, in order of rank in the group.
  [[nodiscard]] std::shared_ptr<GroupEngine> make(const GroupContext& group,
                                                  const std::vector<std::int64_t>& offsets);

  /// Returns whether the whole buffer lies in this rank's arena.
  [[nodiscard]] bool is_symmetric(const Buffer& buffer) const;

  /// Reserves zeroed memory for a group's transports and returns its offset in this rank's arena;
  /// the first offset is 0. Throws Error(kInvalidArgument) if the arena has no room.
  [[nodiscard]] std::int64_t reserve_group(int local_world_size);

  /// Releases the memory of a group that no rank has made.
  void release_group(std::int64_t offset);

  /// Releases the memory once all ranks have left the group.
  void retire_group(std::int64_t offset, int local_world_size) noexcept;

 private:
  struct Shared;

  std::unique_ptr<Shared> shared_;
};

}  // namespace unisono::engine
