#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native/shared_memory.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/remote/connection.h"
#include "unisono/transport/remote/frame_stream.h"
#include "unisono/transport/remote/peer_table.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/endpoint.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/traffic.h"

namespace unisono::engine {

/// Constructor arguments of a NativeEngine: its group, and the resources of this process.
struct NativeParts {
  GroupContext group;
  std::string secret;  ///< For the handshake of connections between nodes.
  /// The group's part of each arena of this node, in order of rank.
  std::vector<shm::ArenaPart> arenas;
  transport::MakeStream make_stream;  ///< Connects ranks of different nodes.
  std::shared_ptr<SymmetricMemory> memory;
  const base::Config& config;
};

/// Transports of a group for operations and for messages: shared memory within the node, tcp
/// between nodes.
///
/// Owned by NativeEngine. Not movable, because the parts refer to each other. Each part has its own
/// thread rules; functions marked "any thread" are thread-safe.
class GroupTransports {
 public:
  /// Returns the size in bytes of a group's part of an arena: a control block, followed by an
  /// endpoint.
  [[nodiscard]] static std::int64_t n_arena_bytes(int local_world_size);

  /// Returns whether all ranks of the node have stopped accessing a part of `arena`, so that its
  /// memory is free.
  [[nodiscard]] static bool have_all_left(const shm::ArenaPart& part, int local_world_size);

  /// The group of `parts` must outlive this object.
  explicit GroupTransports(const NativeParts& parts);

  [[nodiscard]] shm::ControlBlock& control_block() { return control_block_; }

  /// Connections for operations.
  [[nodiscard]] tcp::PeerTable<tcp::Connection>& connections() { return connections_; }

  /// Traffic of connections().
  [[nodiscard]] transport::TrafficCounters& traffic_counters() { return traffic_; }

  [[nodiscard]] shm::Endpoint& endpoint() { return endpoint_; }

  /// For messages.
  [[nodiscard]] tcp::PeerTable<tcp::PacketStream>& packet_streams() { return packet_streams_; }

  /// Wakes this rank's waits, which then check again. Any thread.
  void wake() const noexcept;

  /// Takes over a connection that `rank` opened, after the hello. Any thread.
  void deliver(int rank, std::string_view purpose, Fd socket);

  /// Accepts a connection to one of the group's transports and sends the reason for which the group
  /// has failed. Any thread.
  void reject(int socket, const Error& reason) const noexcept;

  /// Returns the progress of a rank of this node in the group's operations. Any thread.
  [[nodiscard]] transport::RankProgress progress_of(int rank) const;

  /// Returns whether a rank of this node has announced that it leaves. Any thread.
  [[nodiscard]] bool is_leaving(int rank) const {
    return control_block_.is_leaving(topology_.local_rank_of(rank));
  }

  /// Announces to the ranks of this node that this rank leaves, and wakes the ranks that wait for
  /// it.
  void announce_leave() const;

  /// Returns the progress of this rank; std::nullopt after leave(). Any thread.
  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const {
    return control_block_.own_progress();
  }

  /// Records that this rank refused a call after operation `sequence`. Any thread.
  void note_refused(std::uint64_t sequence, std::string_view text) {
    control_block_.note_refused(sequence, text);
  }

  /// Returns the traffic of the connections for operations. Any thread.
  [[nodiscard]] std::vector<RankTraffic> traffic() const { return traffic_.read(); }

  /// Closes all connections, and returns the ranks that had a connection. deliver() must not be
  /// called any more.
  [[nodiscard]] transport::ConnectedPeers close();

  /// The last call: this rank stops accessing the memory of peers and publishing progress.
  void leave() { control_block_.leave(); }

 private:
  const transport::RankTable& ranks_;
  const collective::Topology& topology_;
  std::uint32_t group_;
  shm::ControlBlock control_block_;
  transport::TrafficCounters traffic_;
  tcp::PeerTable<tcp::Connection> connections_;
  shm::Endpoint endpoint_;
  tcp::PeerTable<tcp::PacketStream> packet_streams_;
};

}  // namespace unisono::engine
