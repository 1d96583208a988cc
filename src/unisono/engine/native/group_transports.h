#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/health/group_registry.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/endpoint.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/packet_stream.h"
#include "unisono/transport/tcp/peer_table.h"
#include "unisono/transport/traffic.h"

namespace unisono::engine {

/// What a group's transports are made of. The references outlive them.
struct TransportParts {
  std::uint32_t group;  ///< The group's number.
  const rendezvous::Roster& roster;
  const collective::Topology& topology;
  std::string secret;                  ///< For the hello.
  std::vector<shm::ArenaPart> arenas;  ///< Of this node's ranks, in order of rank in the group.
  transport::MakeStream make_stream;   ///< How ranks of different nodes reach each other.
  bool has_single_copy;                ///< Whether ranks may read each other's private memory.
  transport::JobRanks job_ranks;       ///< For messages.
};

/// How the ranks of one group reach each other, by shared memory and tcp, for operations and for
/// messages. Does not move: its parts are referred to.
class GroupTransports {
 public:
  /// Bytes of a group's part of a rank's arena: its control block, and its endpoint behind that.
  [[nodiscard]] static std::int64_t n_arena_bytes(int local_world_size);

  /// Whether nobody of the node looks at a part of `arena` any more, which then is free.
  [[nodiscard]] static bool have_all_left(const shm::ArenaPart& part, int local_world_size);

  explicit GroupTransports(const TransportParts& parts);

  [[nodiscard]] shm::ControlBlock& control_block() { return control_block_; }

  /// For operations.
  [[nodiscard]] tcp::PeerTable<tcp::Connection>& connections() { return connections_; }

  /// What goes through them.
  [[nodiscard]] transport::TrafficCounters& traffic_counters() { return traffic_; }

  [[nodiscard]] shm::Endpoint& endpoint() { return endpoint_; }

  /// For messages.
  [[nodiscard]] tcp::PeerTable<tcp::PacketStream>& packet_streams() { return packet_streams_; }

  /// Makes waits look again. Any thread.
  void wake() const noexcept;

  /// Takes a connection that `rank` opened, after its hello. Any thread.
  void deliver(int rank, std::string_view purpose, Fd socket);

  /// Turns one away, whose hello says that it is for a transport, with the reason: the group has
  /// failed. Any thread.
  void turn_away(int socket, const Error& reason) const noexcept;

  /// Where a rank of this node is in the group's operations. Any thread.
  [[nodiscard]] transport::RankProgress progress_of(int rank) const;

  /// Whether a rank of this node has announced that it leaves. Any thread.
  [[nodiscard]] bool is_leaving(int rank) const {
    return control_block_.is_leaving(topology_.local_rank_of(rank));
  }

  /// Announces to the ranks of this node that this rank leaves, and wakes those that wait for it.
  void announce_leave() const;

  /// Where this rank is; nothing after leave(). Any thread.
  [[nodiscard]] std::optional<transport::RankProgress> own_progress() const {
    return control_block_.own_progress();
  }

  /// This rank has refused a call after operation `sequence`. Any thread.
  void note_refused(std::uint64_t sequence, std::string_view text) {
    control_block_.note_refused(sequence, text);
  }

  /// What went through the connections for operations. Any thread.
  [[nodiscard]] std::vector<RankTraffic> traffic() const { return traffic_.read(); }

  /// Ends all connections, and returns with whom there were some. Nobody delivers any more.
  [[nodiscard]] health::MetRanks close();

  /// The last call: this rank looks at its peers' memory no more, nor says where it is.
  void leave() { control_block_.leave(); }

 private:
  const rendezvous::Roster& roster_;
  const collective::Topology& topology_;
  std::uint32_t group_;
  shm::ControlBlock control_block_;
  transport::TrafficCounters traffic_;
  tcp::PeerTable<tcp::Connection> connections_;
  shm::Endpoint endpoint_;
  tcp::PeerTable<tcp::PacketStream> packet_streams_;
};

}  // namespace unisono::engine
