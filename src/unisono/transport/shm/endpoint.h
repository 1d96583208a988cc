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
#include "unisono/transport/packet.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/doorbell.h"
#include "unisono/transport/shm/process_memory.h"
#include "unisono/transport/shm/ring.h"

namespace unisono::shm {

/// A group's part of one rank's arena for messages, before its rings: one from each rank of the
/// node, by local rank, its own included. All zero at first.
struct EndpointMemory {
  // On one cache line: a sender looks at both.
  alignas(64) Doorbell doorbell;
  /// The owner sleeps in poll(2), or is about to.
  std::atomic<std::uint32_t> is_polling;
  alignas(64) ProcessProof proof;
  /// 1 once the owner has given up: what it let others read or write is its caller's again.
  alignas(64) std::atomic<std::uint32_t> has_withdrawn;
};

/// A rank of this node, as messages reach it.
struct EndpointMember {
  std::shared_ptr<const Arena> arena;
  std::int64_t offset_bytes;  ///< Of its endpoint in its arena.
  pid_t pid;
  std::string name;  ///< For messages: "rank 2 (pid 4123 on node-a)".
  std::string bell;  ///< Name of its bell socket.
};

/// Where a rank's messages from its node arrive, and how they go to the others. One thread at a
/// time, but ring() and sleep().
class Endpoint {
 public:
  /// `members` are those of the node, in order of rank. With `has_bell_socket` this rank can sleep
  /// in poll(2), too. `has_single_copy` says whether ranks may read each other's private memory.
  /// Throws Error(kSystem).
  Endpoint(std::vector<EndpointMember> members,
           int local_rank,
           bool has_bell_socket,
           bool has_single_copy = true);

  /// What each rank's endpoint takes of its arena. Pages that no message touches cost nothing.
  [[nodiscard]] static std::int64_t n_bytes(int local_world_size);

  /// Packets to and from a rank of the node. The endpoint outlives it.
  [[nodiscard]] std::unique_ptr<transport::PacketChannel> channel(int local_rank);

  [[nodiscard]] const Arena& arena(int local_rank) const { return *member(local_rank).arena; }

  /// The private memory of a rank of the node.
  [[nodiscard]] ProcessMemory process_memory(int local_rank) const;

  /// This rank's memory is no longer to be read or written by others, who notice that. To be called
  /// before its callers get their buffers back.
  void withdraw() const noexcept;

  /// Whether a rank of the node has withdrawn its memory. What was read of it before is as it was
  /// announced where this is false.
  [[nodiscard]] bool has_withdrawn(int local_rank) const noexcept;

  /// Wakes a rank of the node if it sleeps or is about to. Costs two loads if it does not.
  void ring(int local_rank) const noexcept;

  /// Wakes this rank. Any thread.
  void wake() const noexcept;

  /// Announces a sleep of this rank; after it, look at what is waited for. For a sleep in poll(2)
  /// the caller has bell_fd() among its descriptors, and else calls sleep() with what this returns.
  [[nodiscard]] std::uint32_t prepare(bool is_polling) noexcept;

  /// Sleeps until a ring since prepare(), or until `deadline`.
  void sleep(std::uint32_t rings, Deadline deadline) noexcept;

  /// Takes the announcement back.
  void stay() noexcept;

  /// Readable when this rank was rung at while it polls; -1 without a bell socket.
  [[nodiscard]] int bell_fd() const { return bell_.get(); }

 private:
  [[nodiscard]] const EndpointMember& member(int local_rank) const {
    return members_[static_cast<std::size_t>(local_rank)];
  }

  [[nodiscard]] EndpointMemory& memory(int local_rank) const;
  // The ring in the endpoint of `to` for packets of `from`.
  [[nodiscard]] RingMemory& ring(int to, int from) const;

  std::vector<EndpointMember> members_;
  int local_rank_;
  bool has_single_copy_;
  // At an address that the others can look at.
  std::unique_ptr<const std::uint64_t> proof_value_;
  Fd bell_;
};

}  // namespace unisono::shm
