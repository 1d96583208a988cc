#include "unisono/engine/native/group_transports.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/health/group_contacts.h"
#include "unisono/health/group_registry.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_address.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/endpoint.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/connection.h"
#include "unisono/transport/tcp/dialer.h"
#include "unisono/transport/tcp/packet_stream.h"

namespace unisono::engine {
namespace {

shm::Endpoint make_endpoint(const TransportParts& parts) {
  const collective::Topology& topology = parts.topology;
  std::vector<shm::EndpointMember> members;
  for (std::size_t index = 0; index < parts.arenas.size(); ++index) {
    const int rank = topology.local_ranks()[index];
    const rendezvous::Member& member = parts.roster.members[static_cast<std::size_t>(rank)];
    members.push_back({.arena = parts.arenas[index].arena,
                       // Behind the control block.
                       .offset_bytes = parts.arenas[index].offset_bytes +
                                       shm::ControlBlock::n_bytes(topology.local_world_size()),
                       .pid = static_cast<pid_t>(member.pid),
                       .name = rendezvous::describe(member),
                       .bell = fmt::format("{}-messages-{}", member.endpoint, parts.group)});
  }
  const bool has_bell_socket = topology.n_nodes() > 1 && topology.local_world_size() > 1;
  return {std::move(members), topology.local_rank(), has_bell_socket, parts.has_single_copy};
}

tcp::DialerParts dialer_parts(const TransportParts& parts,
                              const char* purpose,
                              tcp::Caller caller) {
  return {.members = health::addresses_of(parts.roster),
          .secret = parts.secret,
          .mine = {.job = parts.roster.job,
                   .purpose = purpose,
                   .rank = parts.roster.self().rank,
                   .group = parts.group},
          .caller = caller,
          .make_stream = parts.make_stream,
          .has_other_nodes = parts.topology.n_nodes() > 1};
}

}  // namespace

std::int64_t GroupTransports::n_arena_bytes(int local_world_size) {
  return shm::ControlBlock::n_bytes(local_world_size) + shm::Endpoint::n_bytes(local_world_size);
}

bool GroupTransports::have_all_left(const shm::ArenaPart& part, int local_world_size) {
  return shm::ControlBlock::have_all_left(*part.arena, part.offset_bytes, local_world_size);
}

GroupTransports::GroupTransports(const TransportParts& parts)
    : roster_(parts.roster),
      topology_(parts.topology),
      group_(parts.group),
      control_block_(topology_.local_ranks(), parts.arenas, topology_.local_rank()),
      traffic_(parts.roster.members.size()),
      // All ranks call an operation at about the same time: it would be open twice each time.
      connections_(
          dialer_parts(parts, transport::kDataPurpose, tcp::Caller::kHigherRank),
          [group = group_, job_ranks = parts.job_ranks](
              int rank, const std::string& name, std::unique_ptr<transport::Stream> stream) {
            return std::make_unique<tcp::Connection>(
                rank, name, group, std::move(stream), job_ranks);
          }),
      endpoint_(make_endpoint(parts)),
      packet_streams_(
          dialer_parts(parts, transport::kMessagePurpose, tcp::Caller::kEither),
          [this](int /*rank*/, const std::string& name, std::unique_ptr<transport::Stream> stream) {
            return std::make_unique<tcp::PacketStream>(name, group_, std::move(stream));
          }) {}

void GroupTransports::wake() const noexcept {
  control_block_.wake();
  connections_.wake();
  endpoint_.wake();
  packet_streams_.wake();
}

void GroupTransports::deliver(int rank, std::string_view purpose, Fd socket) {
  if (purpose == transport::kMessagePurpose) {
    packet_streams_.deliver(rank, std::move(socket));
  } else {
    connections_.deliver(rank, std::move(socket));
  }
}

void GroupTransports::turn_away(int socket, const Error& reason) const noexcept {
  (void)transport::welcome(socket);
  transport::send_abort(socket, group_, reason);
}

transport::RankProgress GroupTransports::progress_of(int rank) const {
  return control_block_.rank_progress(topology_.local_rank_of(rank));
}

void GroupTransports::announce_leave() const {
  control_block_.announce_leave();
  for (int peer = 0; peer < topology_.local_world_size(); ++peer) {
    endpoint_.ring(peer);
  }
}

health::MetRanks GroupTransports::close() {
  health::MetRanks met;
  for (int rank = 0; rank < topology_.world_size(); ++rank) {
    const int job_rank = roster_.members[static_cast<std::size_t>(rank)].rank;
    if (connections_.find(rank) != nullptr) {
      met.by_operations.insert(job_rank);
    }
    if (packet_streams_.find(rank) != nullptr) {
      met.by_messages.insert(job_rank);
    }
  }
  connections_.close();
  packet_streams_.close();
  return met;
}

}  // namespace unisono::engine
