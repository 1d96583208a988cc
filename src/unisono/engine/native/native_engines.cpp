#include "unisono/engine/native_engines.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/memory/node_memory.h"
#include "unisono/engine/native/memory/symmetric_memory.h"
#include "unisono/engine/native/native_engine.h"
#include "unisono/engine/native/native_parts.h"
#include "unisono/health/control_plane.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/stream.h"

namespace unisono::engine {

struct NativeEngines::Shared {
  Config config;
  NodeMemory memory;
  transport::MakeStream streams;
  std::string secret = {};  // Once the ranks have met.
};

void NativeEngines::prepare_process() {
  NodeMemory::prepare_process();
}

NativeEngines::NativeEngines(const Config& config)
    : shared_(new Shared{.config = config,
                         .memory = NodeMemory(config.arena_bytes),
                         .streams = transport::find_streams(config.transport)}) {}

NativeEngines::~NativeEngines() = default;

void NativeEngines::meet(const rendezvous::Roster& roster,
                         const std::string& secret,
                         int listener,
                         Deadline deadline,
                         std::vector<health::NodePeer>& met) {
  shared_->secret = secret;
  shared_->memory.meet(roster, secret, listener, deadline, met);
}

std::shared_ptr<GroupEngine> NativeEngines::make(const GroupParts& parts) {
  std::vector<ArenaPart> arenas;
  for (std::size_t index = 0; index < parts.offsets.size(); ++index) {
    const auto rank = static_cast<std::size_t>(parts.topology.local_ranks()[index]);
    arenas.push_back(
        shared_->memory.part_of(parts.roster.members[rank].rank, parts.offsets[index]));
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
                  .memory = shared_->memory.own(),
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
  return shared_->memory.own()->contains(buffer);
}

std::int64_t NativeEngines::reserve_group(int local_world_size) {
  return shared_->memory.reserve_group(local_world_size);
}

void NativeEngines::release_group(std::int64_t offset) {
  shared_->memory.own()->release(offset);
}

void NativeEngines::retire_group(std::int64_t offset, int local_world_size) noexcept {
  shared_->memory.retire_group(offset, local_world_size);
}

}  // namespace unisono::engine
