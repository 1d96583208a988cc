#include "unisono/engine/native/group_transports.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/collective/topology.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/shm/control_block.h"
#include "unisono/transport/shm/endpoint.h"
#include "unisono/transport/shm/process_memory.h"
#include "unisono/transport/tcp/leave_frames.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/message_mesh.h"

namespace unisono::engine {
namespace {

constexpr std::int64_t kPage = 4096;

// Where the endpoint begins in a group's part of an arena.
std::int64_t endpoint_offset(int local_world_size) {
  return (shm::ControlBlock::n_bytes(local_world_size) + kPage - 1) / kPage * kPage;
}

shm::ControlBlock make_control_block(const TransportParts& parts) {
  std::vector<shm::ControlBlock::Member> members;
  for (std::size_t index = 0; index < parts.arenas.size(); ++index) {
    members.push_back({.rank = parts.topology.local_ranks()[index],
                       .arena = parts.arenas[index].arena,
                       .offset_bytes = parts.arenas[index].offset_bytes});
  }
  return {members, parts.topology.local_rank()};
}

shm::Endpoint make_endpoint(const TransportParts& parts) {
  const collective::Topology& topology = parts.topology;
  std::vector<shm::EndpointMember> members;
  for (std::size_t index = 0; index < parts.arenas.size(); ++index) {
    const int rank = topology.local_ranks()[index];
    const rendezvous::Member& member = parts.roster.members[static_cast<std::size_t>(rank)];
    members.push_back({.arena = parts.arenas[index].arena,
                       .offset_bytes = parts.arenas[index].offset_bytes +
                                       endpoint_offset(topology.local_world_size()),
                       .pid = static_cast<pid_t>(member.pid),
                       .name = rendezvous::describe(member),
                       .bell = fmt::format("{}-messages-{}", member.endpoint, parts.group)});
  }
  const bool has_bell_socket = topology.n_nodes() > 1 && topology.local_world_size() > 1;
  return {std::move(members), topology.local_rank(), has_bell_socket, parts.has_single_copy};
}

net::HelloInfo hello_of(const TransportParts& parts, const char* purpose) {
  return {.job = parts.roster.job,
          .purpose = purpose,
          .rank = parts.roster.self().rank,
          .group = parts.group};
}

}  // namespace

std::vector<tcp::MeshMember> mesh_members(const rendezvous::Roster& roster) {
  std::vector<tcp::MeshMember> members;
  for (const rendezvous::Member& member : roster.members) {
    const std::optional<net::Address> address = net::Address::parse(member.address, member.port);
    if (!address) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} gave \"{}\" as its address, which is none",
                              rendezvous::describe(member),
                              member.address));
    }
    members.push_back(
        {.job_rank = member.rank, .address = *address, .name = rendezvous::describe(member)});
  }
  return members;
}

collective::Topology topology_of(const rendezvous::Roster& roster) {
  std::vector<std::string> nodes;
  for (const rendezvous::Member& member : roster.members) {
    nodes.push_back(member.node);
  }
  return {roster.rank, nodes};
}

std::int64_t GroupTransports::n_arena_bytes(int local_world_size) {
  return endpoint_offset(local_world_size) + shm::Endpoint::n_bytes(local_world_size);
}

bool GroupTransports::have_all_left(const ArenaPart& part, int local_world_size) {
  return shm::ControlBlock::have_all_left(*part.arena, part.offset_bytes, local_world_size);
}

bool GroupTransports::is_for_transports(std::string_view purpose) {
  return purpose == tcp::kDataPurpose || purpose == tcp::kMessagePurpose;
}

GroupTransports::GroupTransports(const TransportParts& parts)
    : topology_(parts.topology),
      group_(parts.group),
      control_block_(make_control_block(parts)),
      mesh_(mesh_members(parts.roster),
            parts.secret,
            hello_of(parts, tcp::kDataPurpose),
            topology_.n_nodes() > 1),
      endpoint_(make_endpoint(parts)),
      message_mesh_(mesh_members(parts.roster),
                    parts.secret,
                    hello_of(parts, tcp::kMessagePurpose),
                    topology_.n_nodes() > 1) {}

std::vector<shm::ProcessMemory> GroupTransports::processes() const {
  std::vector<shm::ProcessMemory> processes;
  for (int peer = 0; peer < topology_.local_world_size(); ++peer) {
    processes.push_back(endpoint_.process_memory(peer));
  }
  return processes;
}

void GroupTransports::wake() const noexcept {
  control_block_.wake();
  mesh_.wake();
  endpoint_.wake();
  message_mesh_.wake();
}

void GroupTransports::deliver(int rank, std::string_view purpose, Fd socket) {
  if (purpose == tcp::kMessagePurpose) {
    message_mesh_.deliver(rank, std::move(socket));
  } else {
    mesh_.deliver(rank, std::move(socket));
  }
}

void GroupTransports::turn_away(std::string_view purpose,
                                int socket,
                                const Error& reason) const noexcept {
  if (purpose == tcp::kMessagePurpose) {
    (void)tcp::MessageMesh::welcome(socket);
  }
  tcp::send_abort(socket, group_, reason);
}

transport::RankProgress GroupTransports::progress_of(int rank) const {
  return control_block_.rank_progress(topology_.local_rank_of(rank));
}

ConnectedRanks GroupTransports::close() {
  ConnectedRanks connected;
  for (int rank = 0; rank < topology_.world_size(); ++rank) {
    if (mesh_.find(rank) != nullptr) {
      connected.by_operations.insert(rank);
    }
    if (message_mesh_.find(rank) != nullptr) {
      connected.by_messages.insert(rank);
    }
  }
  mesh_.close();
  message_mesh_.close();
  return connected;
}

}  // namespace unisono::engine
