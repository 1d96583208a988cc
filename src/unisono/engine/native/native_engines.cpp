#include "unisono/engine/native_engines.h"

#include <sys/types.h>

#include <algorithm>
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
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/asymmetric_fence.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/shm/node_memory.h"
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

// Of the job, in order.
std::vector<int> ranks_of_node(const rendezvous::Roster& roster) {
  std::vector<int> ranks;
  for (const rendezvous::Member& member : roster.members) {
    if (member.node == roster.self().node) {
      ranks.push_back(member.rank);
    }
  }
  return ranks;
}

// Where nobody says more: all arenas of a node together fit into half of a process's addresses.
std::int64_t arena_bytes_for(std::size_t n_ranks) {
  constexpr std::int64_t kAddresses = std::int64_t{1} << 46;
  return std::min(shm::default_arena_bytes(), kAddresses / static_cast<std::int64_t>(n_ranks));
}

}  // namespace

struct NativeEngines::Shared {
  Config config;
  transport::MakeStream streams;
  // Once the ranks have met:
  std::shared_ptr<SymmetricMemory> memory = nullptr;
  std::string secret = {};
  std::map<int, std::shared_ptr<const shm::Arena>> arenas = {};  // By rank of the job.
  Mutex mutex{};
  std::vector<Retired> retired UNISONO_GUARDED_BY(mutex) = {};

  [[nodiscard]] shm::ArenaPart part_of(int job_rank, std::int64_t offset_bytes) const {
    const auto arena = arenas.find(job_rank);
    UNISONO_CHECK(arena != arenas.end(), "a rank of another node has no arena here");
    return {.arena = arena->second, .offset_bytes = offset_bytes};
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
    : shared_(new Shared{.config = config, .streams = transport::find_streams(config.transport)}) {}

NativeEngines::~NativeEngines() = default;

shm::NodeMemory NativeEngines::meet(const rendezvous::Roster& roster,
                                    const std::string& secret,
                                    int listener,
                                    Deadline deadline,
                                    std::vector<shm::NodePeer>& met) {
  const std::vector<int> ranks = ranks_of_node(roster);
  const std::int64_t n_bytes =
      shared_->config.arena_bytes > 0 ? shared_->config.arena_bytes : arena_bytes_for(ranks.size());
  shm::NodeMemory node = shm::meet_node({.rank = roster.rank,
                                         .arena_bytes = n_bytes,
                                         .listener = listener,
                                         .job = roster.job,
                                         .secret = secret},
                                        endpoints_of_others(roster),
                                        deadline,
                                        met);
  shared_->secret = secret;
  for (std::size_t index = 0; index < ranks.size(); ++index) {
    shared_->arenas.emplace(ranks[index], node.arena(index));
  }
  shared_->memory = std::make_shared<SymmetricMemory>(shared_->arenas.at(roster.rank));
  return node;
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
