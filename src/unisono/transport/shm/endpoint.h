#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/doorbell.h"
#include "unisono/transport/shm/node_memory.h"
#include "unisono/transport/shm/ring.h"

namespace unisono::shm {

/// A group's section for messages in a rank's arena. Followed by the rings: one for each rank of
/// the node, by local rank, including the owner. Zero-initialized.
struct EndpointMemory {
  // Both on the same cache line, because a sender reads both.
  alignas(64) Doorbell doorbell;
  /// Nonzero while the owner sleeps in poll(2) or is about to.
  std::atomic<std::uint32_t> is_polling;
  alignas(64) ProcessProof proof;
  /// 1 once the owner has aborted: memory exposed to peers belongs to the callers again.
  alignas(64) std::atomic<std::uint32_t> has_withdrawn;
};

/// A rank of this node, as an endpoint for messages.
struct EndpointMember {
  std::shared_ptr<const Arena> arena;
  std::int64_t offset_bytes;  ///< Offset of the endpoint in the arena.
  pid_t pid;
  std::string name;  ///< For messages: "rank 2 (pid 4123 on node-a)".
  std::string bell;  ///< Name of the socket that wakes the rank from poll(2).
};

/// Exchanges a group's messages with the ranks of this node: rings in shared memory, and the
/// doorbells that wake sleeping ranks.
///
/// Each rank has an endpoint for each group; the endpoint outlives all channels. Not thread-safe,
/// except for ring(), wake() and sleep(). Only the constructor throws Error(kSystem).
class Endpoint {
 public:
  /// `members` are the ranks of the node, in order. With `has_bell_socket` this rank can also sleep
  /// in poll(2). `has_single_copy` is true if ranks may read each other's private memory. Throws
  /// Error(kSystem).
  Endpoint(std::vector<EndpointMember> members,
           int local_rank,
           bool has_bell_socket,
           bool has_single_copy = true);

  /// Returns the size of a rank's endpoint in the arena, in bytes. Pages that no message touches
  /// cost no memory.
  [[nodiscard]] static std::int64_t n_bytes(int local_world_size);

  /// Returns the packet channel to a rank of the node. The endpoint must outlive the channel.
  [[nodiscard]] std::unique_ptr<transport::PacketChannel> channel(int local_rank);

  [[nodiscard]] const Arena& arena(int local_rank) const { return *member(local_rank).arena; }

  /// Returns access to the private memory of a rank of the node.
  [[nodiscard]] ProcessMemory process_memory(int local_rank) const;

  /// Publishes that other ranks must no longer read or write this rank's memory. Must be called
  /// before the callers get their buffers back.
  void withdraw() const noexcept;

  /// Returns true if a rank of the node has withdrawn its memory. If false, all data read from that
  /// memory before the call is valid.
  [[nodiscard]] bool has_withdrawn(int local_rank) const noexcept;

  /// Wakes a rank of the node if it sleeps or is about to sleep. Costs two loads otherwise.
  void ring(int local_rank) const noexcept;

  /// Wakes this rank. Any thread.
  void wake() const noexcept;

  /// Announces a sleep of this rank; the caller must then poll the condition once more. To sleep in
  /// poll(2), the caller polls bell_fd(). Otherwise the caller calls sleep() with the returned
  /// value.
  [[nodiscard]] std::uint32_t prepare(bool is_polling) noexcept;

  /// Sleeps until a ring after prepare(), or until `deadline`.
  void sleep(std::uint32_t rings, Deadline deadline) noexcept;

  /// Withdraws the announcement.
  void stay() noexcept;

  /// Becomes readable when this rank is rung while it sleeps in poll(2). -1 without a bell socket.
  [[nodiscard]] int bell_fd() const { return bell_.get(); }

 private:
  [[nodiscard]] const EndpointMember& member(int local_rank) const {
    return members_[static_cast<std::size_t>(local_rank)];
  }

  [[nodiscard]] EndpointMemory& memory(int local_rank) const;
  // Returns the ring in the endpoint of `to` for packets from `from`.
  [[nodiscard]] RingMemory& ring(int to, int from) const;

  std::vector<EndpointMember> members_;
  int local_rank_;
  bool has_single_copy_;
  // On the heap: other ranks read the value at its address, so it must not move.
  std::unique_ptr<const std::uint64_t> proof_value_;
  Fd bell_;
};

}  // namespace unisono::shm
