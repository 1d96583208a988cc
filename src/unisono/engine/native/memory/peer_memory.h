#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/health/rank_status.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/process_memory.h"

namespace unisono::engine {

class GroupTransports;
struct NativeParts;

/// Whether one copy out of another process (process_vm_readv) takes less time than two by way of
/// shared memory. Measured when it is first asked for, which takes a millisecond.
[[nodiscard]] bool is_single_copy_faster();

/// The private memory of the node's other ranks, to be read in one copy where the system allows it
/// and that is faster than two copies by way of a staging buffer. One thread at a time.
class PeerMemory {
 public:
  /// The references outlive it; `has_cores`: the node has a core for each of its ranks.
  PeerMemory(const NativeParts& parts, GroupTransports& transports, bool has_cores);

  /// Whether it is used even where it is not faster.
  [[nodiscard]] bool is_forced() const { return is_forced_; }

  /// Whether every rank of the node has decided to read its peers' memory. Ranks may learn that at
  /// different times, so each offer says how it is to be read.
  [[nodiscard]] bool is_shared();

  /// The same, and each rank has a core of its own: else reductions gain nothing.
  [[nodiscard]] bool is_shared_for_reductions() {
    return (has_cores_ || is_forced_) && is_shared();
  }

  /// After an operation that staged memory: finds out whether this rank can read its peers', and
  /// whether that is faster, and tells them. Does nothing the second time.
  void learn();

  /// Fills `into` from an address of a rank. Throws Error(kSystem), or kPeerLost if its process is
  /// gone.
  void read(int local_rank, std::uint64_t address, std::span<std::byte> into) const;

 private:
  std::vector<shm::ProcessMemory> processes_;  // By local rank.
  shm::ControlBlock& control_block_;
  const health::RankStatus& ranks_;
  bool is_forced_;
  bool has_cores_;
  bool has_learnt_ = false;
  bool is_shared_ = false;
};

}  // namespace unisono::engine
