#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/engine/group_engine.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::engine {

/// A rank's arena with its heap. Buffers share ownership, so the memory lives as long as the last
/// buffer. Thread-safe.
class SymmetricMemory : public std::enable_shared_from_this<SymmetricMemory> {
 public:
  explicit SymmetricMemory(std::shared_ptr<const shm::Arena> arena);

  /// Returns zeroed memory that the buffer's owner releases. In a child of fork(), which does not
  /// share the memory, the owner does not release it. Throws Error(kInvalidArgument) if the arena
  /// has no room.
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype);

  /// Returns whether the whole buffer lies in the arena.
  [[nodiscard]] bool contains(const Buffer& buffer) const {
    return arena_->offset_of(buffer.data, buffer.n_bytes()).has_value();
  }

  /// Returns the offset of zeroed memory. The caller must call release() only after its peers have
  /// stopped accessing the memory. Throws like allocate().
  [[nodiscard]] std::int64_t reserve(std::int64_t n_bytes);

  /// Frees memory of reserve() or allocate().
  void release(std::int64_t offset) { heap_.free(offset); }

  [[nodiscard]] const std::shared_ptr<const shm::Arena>& arena() const { return arena_; }

 private:
  std::shared_ptr<const shm::Arena> arena_;
  shm::Heap heap_;
};

class GroupTransports;
struct NativeParts;

/// Returns whether a single copy out of another process (process_vm_readv) takes less time than two
/// copies through shared memory. The first call measures, which takes a millisecond.
[[nodiscard]] bool is_single_copy_faster();

/// Reads the private memory of the node's other ranks in a single copy, if the system permits
/// single copies and they are faster than two copies through a staging buffer.
///
/// Owned by NativeEngine; used only by the thread that executes an operation.
class PeerMemory {
 public:
  /// The references must outlive the object. `has_cores`: the node has a core for each of its
  /// ranks.
  PeerMemory(const NativeParts& parts, GroupTransports& transports, bool has_cores);

  /// Returns whether single copies are used even if they are slower.
  [[nodiscard]] bool is_forced() const { return is_forced_; }

  /// Returns whether every rank of the node has decided to read the memory of peers. Ranks may
  /// learn the decision at different times, so each offer of data states the method of access.
  [[nodiscard]] bool is_shared();

  /// Like is_shared(), and each rank has a core of its own; otherwise reductions do not gain time.
  [[nodiscard]] bool is_shared_for_reductions() {
    return (has_cores_ || is_forced_) && is_shared();
  }

  /// Called after an operation that staged memory. Determines whether this rank can read its peers'
  /// memory and whether that is faster, and publishes the result to the node. Only the first call
  /// has an effect.
  void learn();

  /// Fills `into` from an address in a rank's process. Throws Error(kPeerLost) if the process is
  /// gone, otherwise Error(kSystem).
  void read(int local_rank, std::uint64_t address, std::span<std::byte> into) const;

 private:
  std::vector<shm::ProcessMemory> processes_;  // By local rank.
  shm::ControlBlock& control_block_;
  const GroupContext& group_;
  bool is_forced_;
  bool has_cores_;
  bool has_learnt_ = false;
  bool is_shared_ = false;
};

}  // namespace unisono::engine
