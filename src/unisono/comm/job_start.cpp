#include "unisono/comm/job_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/engine/native_engines.h"
#include "unisono/health/diagnostics_store.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/node_id.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/store_client.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::comm {
namespace {

Logger rank_logger(const JobOptions& options) {
  return Logger(fmt::format("rank {}", options.launch_info.rank), options.config.log_level);
}

// Where a process has had a group before, rank 0 may still have been about to end that one's store.
bool was_an_earlier_store(const JobOptions& options, const Error& error) {
  return error.code() == ErrorCode::kPeerLost && options.generation > 0 &&
         options.launch_info.rank != 0 && !options.launch_info.uses_agent_store &&
         !options.deadline.has_passed();
}

// Nothing where the program brings a store.
std::string place_of(const rendezvous::LaunchInfo& launch_info) {
  return launch_info.master_addr.empty() ? "" : rendezvous::describe_place(launch_info);
}

// Who is gone may have given up because of another, or because rank 0 has ended and the store with
// it.
Error explain(const Error& error,
              const rendezvous::Roster& roster,
              const rendezvous::StoreSession& session) {
  if (error.code() != ErrorCode::kPeerLost) {
    return error;
  }
  health::DiagnosticsStore store(session, store_prefix(roster.job, 0), roster.rank);
  const std::optional<health::Reason> reason = store.find_first();
  if (!reason || reason->rank >= roster.world_size()) {
    return store.with_lost_host(error, roster);
  }
  const rendezvous::Member& first = roster.members[static_cast<std::size_t>(reason->rank)];
  const Error known = transport::relayed(rendezvous::describe(first), reason->error);
  return {known.code(), fmt::format("rank {}: {}", roster.rank, known.what())};
}

// As the members of its groups say it.
Error with_prefix(const Error& error, const rendezvous::Roster& roster) {
  return {error.code(),
          fmt::format("[rank {}/{}] {}", roster.rank, roster.world_size(), error.what())};
}

}  // namespace

rendezvous::Member describe_self(const JobOptions& options,
                                 const std::string& endpoint,
                                 const net::Address& data_address) {
  return {.rank = options.launch_info.rank,
          .world_size = options.launch_info.world_size,
          .host = rendezvous::host_name(),
          .pid = ::getpid(),
          .node = rendezvous::node_id(options.config),
          .address = data_address.ip(),
          .port = data_address.port(),
          .endpoint = endpoint,
          .backend = options.backend.need};
}

rendezvous::StoreSession connect_store(const JobOptions& options) {
  // Before the store's thread and the watcher's start, which make it slow.
  engine::NativeEngines::prepare_process();
  if (options.store.store != nullptr) {
    return rendezvous::use_store(options.store, options.config, options.launch_info);
  }
  while (true) {
    try {
      return rendezvous::connect_store(options.config,
                                       options.launch_info,
                                       options.deadline,
                                       {.generation = options.generation});
    } catch (const Error& error) {
      if (!was_an_earlier_store(options, error)) {
        throw;
      }
    }
  }
}

rendezvous::Roster exchange_roster(const JobOptions& options,
                                   rendezvous::StoreSession& session,
                                   const rendezvous::Member& self) {
  while (true) {
    try {
      return rendezvous::exchange_roster(*session.store,
                                         self,
                                         options.deadline,
                                         {.generation = options.generation,
                                          .place = place_of(session.launch_info),
                                          .from_variables = session.launch_info.from_variables,
                                          .stall = options.config.stall,
                                          .logger = rank_logger(options)});
    } catch (const Error& error) {
      rendezvous::leave_after_failure(session);
      if (!was_an_earlier_store(options, error)) {
        const bool is_given = options.store.store != nullptr;
        if (error.code() == ErrorCode::kPeerLost && !is_given && session.host == nullptr) {
          throw rendezvous::lost_store(session.launch_info, error);
        }
        throw;
      }
    }
    session = connect_store(options);
  }
}

shm::NodeMemory meet_node(const rendezvous::Roster& roster,
                          rendezvous::StoreSession& session,
                          engine::NativeEngines& engines,
                          Fd& listener,
                          Deadline deadline) {
  std::vector<shm::NodePeer> met;
  try {
    return engines.meet(roster, session.secret, listener.get(), deadline, met);
  } catch (const Error& error) {
    const Error reason = explain(error, roster, session);
    publish_failed_start(roster, session, reason);
    for (const shm::NodePeer& peer : met) {
      transport::send_abort(peer.socket.get(), 0, with_prefix(reason, roster));
    }
    listener.reset();  // Others see at once that this rank does not come.
    rendezvous::leave_after_failure(session, kTimeToRead);
    throw Error(reason);
  }
}

void publish_failed_start(const rendezvous::Roster& roster,
                          const rendezvous::StoreSession& session,
                          const Error& error) noexcept {
  try {
    (void)health::DiagnosticsStore(session, store_prefix(roster.job, 0), roster.rank)
        .publish(with_prefix(error, roster), false);
  } catch (const std::exception&) {
    return;  // Out of memory, say: the others see that it is gone.
  }
}

std::string store_prefix(const std::string& job, std::uint32_t group) {
  return fmt::format("unisono/{}/group{}", job, group);
}

}  // namespace unisono::comm
