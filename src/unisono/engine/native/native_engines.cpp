#include "unisono/engine/native_engines.h"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/engine/native/native_engine.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/health/control_plane.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/asymmetric_fence.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/stream.h"

namespace unisono::engine {

namespace {

// Peers may still look at it.
struct Retired {
  std::int64_t offset;
  int local_world_size;
};

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

struct NativeEngines::Shared {
  Config config;
  std::shared_ptr<SymmetricMemory> memory;
  transport::MakeStream streams;
  // Once the ranks have met:
  std::string secret = {};
  int rank = 0;                                                  // Of the job.
  std::map<int, std::shared_ptr<const shm::Arena>> others = {};  // By rank of the job.
  Mutex mutex{};
  std::vector<Retired> retired UNISONO_GUARDED_BY(mutex) = {};

  [[nodiscard]] shm::ArenaPart part_of(int job_rank, std::int64_t offset_bytes) const {
    if (job_rank == rank) {
      return {.arena = memory->arena(), .offset_bytes = offset_bytes};
    }
    const auto other = others.find(job_rank);
    UNISONO_CHECK(other != others.end(), "a rank of another node has no arena here");
    return {.arena = other->second, .offset_bytes = offset_bytes};
  }

  void free_retired() UNISONO_REQUIRES(mutex) {
    std::erase_if(retired, [this](const Retired& part) {
      const bool have_all_left = GroupTransports::have_all_left(
          {.arena = memory->arena(), .offset_bytes = part.offset}, part.local_world_size);
      if (have_all_left) {
        memory->release(part.offset);
      }
      return have_all_left;
    });
  }
};

void NativeEngines::prepare_process() {
  shm::join_asymmetric_fences_early();
}

NativeEngines::NativeEngines(const Config& config)
    : shared_(new Shared{
          .config = config,
          .memory = std::make_shared<SymmetricMemory>(
              std::make_shared<const shm::Arena>(shm::Arena::create(
                  config.arena_bytes > 0 ? config.arena_bytes : shm::default_arena_bytes()))),
          .streams = transport::find_streams(config.transport)}) {}

NativeEngines::~NativeEngines() = default;

void NativeEngines::meet(const rendezvous::Roster& roster,
                         const std::string& secret,
                         int listener,
                         Deadline deadline,
                         std::vector<health::NodePeer>& met) {
  shared_->secret = secret;
  shared_->rank = roster.rank;
  std::vector<shm::NodePeer> peers;
  const auto take = [&] {
    for (shm::NodePeer& peer : peers) {
      shared_->others.emplace(peer.rank, std::move(peer.arena));
      met.push_back({.rank = peer.rank, .socket = std::move(peer.socket)});
    }
  };
  try {
    shm::meet_node({.rank = roster.rank,
                    .arena = shared_->memory->arena(),
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

std::shared_ptr<GroupEngine> NativeEngines::make(const GroupParts& parts) {
  std::vector<shm::ArenaPart> arenas;
  for (std::size_t index = 0; index < parts.offsets.size(); ++index) {
    const auto rank = static_cast<std::size_t>(parts.topology.local_ranks()[index]);
    arenas.push_back(shared_->part_of(parts.roster.members[rank].rank, parts.offsets[index]));
  }
  const Config& config = shared_->config;
  return std::make_shared<NativeEngine>(
      NativeParts{.transports = {.group = parts.group,
                                 .roster = parts.roster,
                                 .topology = parts.topology,
                                 .secret = shared_->secret,
                                 .arenas = std::move(arenas),
                                 .make_stream = shared_->streams,
                                 .has_single_copy = config.single_copy != SingleCopy::kOff,
                                 .job_ranks = parts.ranks.job_ranks()},
                  .memory = shared_->memory,
                  .failure = parts.failure,
                  .single_copy = config.single_copy,
                  .links = config.links,
                  .ranks = parts.ranks,
                  .status = parts.status,
                  .health = parts.health,
                  .work_waits = parts.work_waits,
                  .diagnostics = parts.diagnostics,
                  .stall = config.stall,
                  .checks_buffers = config.checks_buffers});
}

bool NativeEngines::is_symmetric(const Buffer& buffer) const {
  return shared_->memory->contains(buffer);
}

std::int64_t NativeEngines::reserve_group(int local_world_size) {
  const MutexLock lock(shared_->mutex);
  shared_->free_retired();
  return shared_->memory->reserve(GroupTransports::n_arena_bytes(local_world_size));
}

void NativeEngines::release_group(std::int64_t offset) {
  shared_->memory->release(offset);
}

void NativeEngines::retire_group(std::int64_t offset, int local_world_size) noexcept {
  const MutexLock lock(shared_->mutex);
  shared_->retired.push_back({.offset = offset, .local_world_size = local_world_size});
  shared_->free_retired();
}

}  // namespace unisono::engine
