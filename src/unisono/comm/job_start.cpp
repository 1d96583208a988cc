#include "unisono/comm/job_start.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "unisono/rendezvous/this_node.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/shm/node.h"

namespace unisono::comm {
namespace {

base::Logger rank_logger(const JobOptions& options) {
  return base::Logger(fmt::format("rank {}", options.launch_info.rank), options.config.log_level);
}

// Returns whether the error may come from the store of this process's earlier group, which rank 0
// was about to end.
bool was_an_earlier_store(const JobOptions& options, const Error& error) {
  return error.code() == ErrorCode::kPeerLost && options.generation > 0 &&
         options.launch_info.rank != 0 && !options.launch_info.uses_agent_store &&
         !options.deadline.has_passed();
}

// Returns "" if the program brings a store.
std::string place_of(const rendezvous::LaunchInfo& launch_info) {
  return launch_info.master_addr.empty() ? "" : rendezvous::describe_place(launch_info);
}

// Returns the error with the cause. A lost rank may have failed because of another rank, or because
// rank 0 has ended with the store.
Error explain(const Error& error,
              const transport::RankTable& roster,
              const rendezvous::StoreSession& session) {
  if (error.code() != ErrorCode::kPeerLost) {
    return error;
  }
  peers::DiagnosticsStore store(store_access(session), store_prefix(roster.job, 0), roster.rank);
  const std::optional<peers::Reason> reason = store.find_first();
  if (!reason || reason->rank >= roster.world_size()) {
    return store.with_lost_host(error, roster);
  }
  const transport::Member& first = roster.member(reason->rank);
  const Error known = transport::relayed(transport::describe(first), reason->error);
  return {known.code(), fmt::format("rank {}: {}", roster.rank, known.what())};
}

// Returns the error as a rank of the group of all ranks reports it.
Error with_prefix(const Error& error, const transport::RankTable& roster) {
  return {error.code(),
          fmt::format("[rank {}/{}] {}", roster.rank, roster.world_size(), error.what())};
}

// Converts the roster of the rendezvous. Throws Error(kCorruptData) for an invalid address.
transport::RankTable rank_table_of(const rendezvous::Roster& roster) {
  transport::RankTable ranks{.rank = roster.rank, .job = roster.job, .members = {}};
  for (const rendezvous::RosterMember& member : roster.members) {
    const std::optional<net::Address> address = net::Address::parse(member.address, member.port);
    if (!address) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{} gave \"{}\" as its address, which is not an IP address",
                              rendezvous::describe(member),
                              member.address));
    }
    const auto local_rank =
        std::ranges::count(ranks.members, member.node, &transport::Member::node);
    ranks.members.push_back({.job_rank = member.rank,
                             .local_rank = static_cast<int>(local_rank),
                             .host = member.host,
                             .pid = member.pid,
                             .node = member.node,
                             .address = *address,
                             .endpoint = member.endpoint});
  }
  return ranks;
}

rendezvous::Roster exchange_roster(const JobOptions& options,
                                   rendezvous::StoreSession& session,
                                   const rendezvous::RosterMember& self) {
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

}  // namespace

rendezvous::RosterMember describe_self(const JobOptions& options,
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
  // Registration is slow in a process with several threads.
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

JoinedJob join(const JobOptions& options,
               rendezvous::StoreSession& session,
               const rendezvous::RosterMember& self,
               const base::Logger& logger) {
  const rendezvous::Roster roster = exchange_roster(options, session, self);
  try {
    return {.ranks = rank_table_of(roster),
            .backend = agreed_backend(options.backend.backend, roster, logger)};
  } catch (const Error&) {
    rendezvous::leave_after_failure(session);
    throw;
  }
}

peers::StoreAccess store_access(const rendezvous::StoreSession& session) {
  // If the program brings a store, its location is unknown.
  const rendezvous::LaunchInfo& launch_info = session.launch_info;
  return {.connect = session.connect_again,
          .is_served_by_rank_0 = !launch_info.master_addr.empty() &&
                                 !launch_info.uses_agent_store && session.host == nullptr};
}

shm::NodeMemory meet_node(const transport::RankTable& roster,
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
    listener.reset();  // Other ranks detect at once that this rank does not come.
    rendezvous::leave_after_failure(session, kTimeToRead);
    throw Error(reason);
  }
}

void publish_failed_start(const transport::RankTable& roster,
                          const rendezvous::StoreSession& session,
                          const Error& error) noexcept {
  try {
    (void)peers::DiagnosticsStore(store_access(session), store_prefix(roster.job, 0), roster.rank)
        .publish(with_prefix(error, roster), false);
  } catch (const std::exception&) {
    return;  // For example out of memory: the other ranks detect that this rank is gone.
  }
}

std::string store_prefix(const std::string& job, std::uint32_t group) {
  return fmt::format("unisono/{}/group{}", job, group);
}

}  // namespace unisono::comm
