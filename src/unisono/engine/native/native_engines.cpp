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
#include "unisono/engine/native/native_engine.h"
#include "unisono/engine/native/shared_memory.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/doorbell.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/shm/node_memory.h"
#include "unisono/transport/stream.h"

namespace unisono::engine {

namespace {

// Memory of a group that this rank has left. Peers may still access it.
struct Retired {
  std::int64_t offset;
  int local_world_size;
};

std::vector<shm::NodeEndpoint> endpoints_of_others(const transport::RankTable& roster) {
  std::vector<shm::NodeEndpoint> endpoints;
  for (const transport::Member& member : roster.members) {
    if (member.job_rank != roster.rank && member.node == roster.self().node) {
      endpoints.push_back({.rank = member.job_rank,
                           .socket = member.endpoint,
                           .name = transport::describe(member),
                           .pid = static_cast<pid_t>(member.pid)});
    }
  }
  return endpoints;
}

// Returns the job's ranks on this node, in ascending order.
std::vector<int> ranks_of_node(const transport::RankTable& roster) {
  std::vector<int> ranks;
  for (const transport::Member& member : roster.members) {
    if (member.node == roster.self().node) {
      ranks.push_back(member.job_rank);
    }
  }
  return ranks;
}

// Returns the default arena size in bytes: all arenas of a node together take at most half of a
// process's address space.
std::int64_t arena_bytes_for(std::size_t n_ranks) {
  constexpr std::int64_t kAddresses = std::int64_t{1} << 46;
  return std::min(shm::default_arena_bytes(), kAddresses / static_cast<std::int64_t>(n_ranks));
}

}  // namespace

struct NativeEngines::Shared {
  base::Config config;
  transport::MakeStream streams;
  // Set once the ranks have met:
  std::shared_ptr<SymmetricMemory> memory = nullptr;
  std::string secret = {};
  std::map<int, std::shared_ptr<const shm::Arena>> arenas = {};  // Indexed by rank of the job.
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

NativeEngines::NativeEngines(const base::Config& config)
    : shared_(new Shared{.config = config, .streams = transport::find_streams(config.transport)}) {}

NativeEngines::~NativeEngines() = default;

shm::NodeMemory NativeEngines::meet(const transport::RankTable& roster,
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

std::shared_ptr<GroupEngine> NativeEngines::make(const GroupContext& group,
                                                 const std::vector<std::int64_t>& offsets) {
  std::vector<shm::ArenaPart> arenas;
  for (std::size_t index = 0; index < offsets.size(); ++index) {
    const int rank = group.topology.local_ranks()[index];
    arenas.push_back(shared_->part_of(group.ranks.member(rank).job_rank, offsets[index]));
  }
  return std::make_shared<NativeEngine>(NativeParts{.group = group,
                                                    .secret = shared_->secret,
                                                    .arenas = std::move(arenas),
                                                    .make_stream = shared_->streams,
                                                    .memory = shared_->memory,
                                                    .config = shared_->config});
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
