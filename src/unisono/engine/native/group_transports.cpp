#include "unisono/engine/native/group_transports.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <cstddef>
#include <utility>

#include "unisono/transport/dial.h"
#include "unisono/transport/frame.h"

namespace unisono::engine {
namespace {

// The endpoint has a bell socket if a waiting thread must poll connections and local peers
// together.
shm::Endpoint make_endpoint(const NativeParts& parts) {
  const collective::Topology& topology = parts.group.topology;
  std::vector<shm::EndpointMember> members;
  for (std::size_t index = 0; index < parts.arenas.size(); ++index) {
    const int rank = topology.local_ranks()[index];
    const transport::Member& member = parts.group.ranks.member(rank);
    members.push_back({.arena = parts.arenas[index].arena,
                       // The endpoint lies behind the control block.
                       .offset_bytes = parts.arenas[index].offset_bytes +
                                       shm::ControlBlock::n_bytes(topology.local_world_size()),
                       .pid = static_cast<pid_t>(member.pid),
                       .name = transport::describe(member),
                       .bell = fmt::format("{}-messages-{}", member.endpoint, parts.group.number)});
  }
  const bool has_bell_socket = topology.n_nodes() > 1 && topology.local_world_size() > 1;
  return {std::move(members),
          topology.local_rank(),
          has_bell_socket,
          parts.config.single_copy != SingleCopy::kOff};
}

tcp::DialerParts dialer_parts(const NativeParts& parts,
                              const char* purpose,
                              tcp::DialingRank caller) {
  return {.members = transport::addresses_of(parts.group.ranks),
          .secret = parts.secret,
          .mine = {.job = parts.group.ranks.job,
                   .purpose = purpose,
                   .rank = parts.group.ranks.self().job_rank,
                   .group = parts.group.number},
          .caller = caller,
          .make_stream = parts.make_stream,
          .has_other_nodes = parts.group.topology.n_nodes() > 1};
}

}  // namespace

std::int64_t GroupTransports::n_arena_bytes(int local_world_size) {
  return shm::ControlBlock::n_bytes(local_world_size) + shm::Endpoint::n_bytes(local_world_size);
}

bool GroupTransports::have_all_left(const shm::ArenaPart& part, int local_world_size) {
  return shm::ControlBlock::have_all_left(*part.arena, part.offset_bytes, local_world_size);
}

GroupTransports::GroupTransports(const NativeParts& parts)
    : ranks_(parts.group.ranks),
      topology_(parts.group.topology),
      group_(parts.group.number),
      control_block_(topology_.local_ranks(), parts.arenas, topology_.local_rank()),
      traffic_(parts.group.ranks.members.size()),
      // All ranks call an operation at about the same time. If either rank could dial, each pair
      // would open two connections.
      connections_(
          dialer_parts(parts, transport::kDataPurpose, tcp::DialingRank::kHigherRank),
          [group = group_, job_ranks = parts.group.job_ranks](
              int rank, const std::string& name, std::unique_ptr<transport::Stream> stream) {
            return std::make_unique<tcp::Connection>(
                rank, name, group, std::move(stream), job_ranks);
          }),
      endpoint_(make_endpoint(parts)),
      packet_streams_(
          dialer_parts(parts, transport::kMessagePurpose, tcp::DialingRank::kEither),
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

void GroupTransports::reject(int socket, const Error& reason) const noexcept {
  (void)transport::send_accept(socket);
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

transport::ConnectedPeers GroupTransports::close() {
  transport::ConnectedPeers met;
  for (int rank = 0; rank < topology_.world_size(); ++rank) {
    const int job_rank = ranks_.member(rank).job_rank;
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
