#include "unisono/engine/native/memory/node_memory.h"

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/health/control_plane.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/asymmetric_fence.h"
#include "unisono/transport/shm/node.h"

namespace unisono::engine {
namespace {

std::vector<shm::NodeEndpoint> endpoints_of_others(const rendezvous::Roster& roster) {
  std::vector<shm::NodeEndpoint> endpoints;
  for (const rendezvous::Member& member : roster.members) {
    if (member.rank != roster.rank && member.node == roster.self().node) {
      endpoints.push_back({.rank = member.rank,
                           .socket = member.endpoint,
                           .name = rendezvous::describe(member),
                           .pid = static_cast<pid_t>(member.pid)});
    }
  }
  return endpoints;
}

}  // namespace

void NodeMemory::prepare_process() {
  shm::join_asymmetric_fences_early();
}

NodeMemory::NodeMemory(std::int64_t n_bytes)
    : own_(std::make_shared<SymmetricMemory>(std::make_shared<const shm::Arena>(
          shm::Arena::create(n_bytes > 0 ? n_bytes : shm::default_arena_bytes())))) {}

void NodeMemory::meet(const rendezvous::Roster& roster,
                      const std::string& secret,
                      int listener,
                      Deadline deadline,
                      std::vector<health::NodePeer>& met) {
  rank_ = roster.rank;
  std::vector<shm::NodePeer> peers;
  const auto take = [&] {
    for (shm::NodePeer& peer : peers) {
      others_.emplace(peer.rank, std::move(peer.arena));
      met.push_back({.rank = peer.rank, .socket = std::move(peer.socket)});
    }
  };
  try {
    shm::meet_node({.rank = roster.rank,
                    .arena = own_->arena(),
                    .listener = listener,
                    .job = roster.job,
                    .secret = secret},
                   endpoints_of_others(roster),
                   deadline,
                   peers);
  } catch (...) {
    take();
    throw;
  }
  take();
}

ArenaPart NodeMemory::part_of(int job_rank, std::int64_t offset_bytes) const {
  if (job_rank == rank_) {
    return {.arena = own_->arena(), .offset_bytes = offset_bytes};
  }
  const auto other = others_.find(job_rank);
  UNISONO_CHECK(other != others_.end(), "a rank of another node has no arena here");
  return {.arena = other->second, .offset_bytes = offset_bytes};
}

std::int64_t NodeMemory::reserve_group(int local_world_size) {
  const MutexLock lock(mutex_);
  free_retired();
  return own_->reserve(GroupTransports::n_arena_bytes(local_world_size));
}

void NodeMemory::retire_group(std::int64_t offset, int local_world_size) noexcept {
  const MutexLock lock(mutex_);
  retired_.push_back({.offset = offset, .local_world_size = local_world_size});
  free_retired();
}

void NodeMemory::free_retired() {
  std::erase_if(retired_, [this](const Retired& part) {
    const bool have_all_left = GroupTransports::have_all_left(
        {.arena = own_->arena(), .offset_bytes = part.offset}, part.local_world_size);
    if (have_all_left) {
      own_->release(part.offset);
    }
    return have_all_left;
  });
}

}  // namespace unisono::engine
