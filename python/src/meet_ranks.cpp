#include "meet_ranks.h"

#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/resolve_rendezvous.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/this_node.h"
#include "unisono/store/store.h"

#include "core_store.h"
#include "rendezvous_generation.h"

namespace unisono::python {
namespace {

constexpr const char* kTimes = "unisono";

rendezvous::RosterMember describe_self(const rendezvous::LaunchInfo& launch_info) {
  // No rank connects to another by this roster, so all ranks pass the same address.
  return {.rank = launch_info.rank,
          .world_size = launch_info.world_size,
          .host = rendezvous::host_name(),
          .pid = ::getpid(),
          .node = "",
          .address = "127.0.0.1",
          .port = 0,
          .endpoint = ""};
}

void exchange_roster(const rendezvous::StoreSession& session,
                     const RendezvousGeneration& time,
                     const rendezvous::RendezvousInfo& info) {
  const rendezvous::LaunchInfo& launch_info = info.discovered.launch_info;
  const std::string name = "rank " + std::to_string(launch_info.rank);
  store::PrefixStore part(time.prefix, session.store);
  try {
    (void)rendezvous::exchange_roster(part,
                                      describe_self(launch_info),
                                      info.deadline,
                                      {.place = rendezvous::describe_place(session.launch_info),
                                       .from_variables = session.launch_info.from_variables,
                                       .whole_store = session.store.get(),
                                       .stall = info.config.stall,
                                       .logger = base::Logger(name, info.config.log_level)});
  } catch (const Error& error) {
    throw Error(explained(error, time));
  }
}

// True if this process has met other ranks before.
std::atomic<bool> has_met{false};

// Returns true if the error indicates an earlier store, which rank 0 was about to close.
bool was_an_earlier_store(const rendezvous::RendezvousInfo& info,
                          const RendezvousGeneration& time,
                          ErrorCode code) {
  return code == ErrorCode::kPeerLost && (time.is_known || has_met) &&
         info.discovered.launch_info.rank != 0 && !info.discovered.launch_info.uses_agent_store &&
         !info.deadline.has_passed();
}

// Returns the prefix of the ranks' keys; std::nullopt if the store was an earlier one and the ranks
// meet in another store.
std::optional<std::string> meet_others(rendezvous::StoreSession& session,
                                       const rendezvous::RendezvousInfo& info) {
  RendezvousGeneration time;
  try {
    const int rank = info.discovered.launch_info.rank;
    time = session.is_second_rank_0 ? first_generation(kTimes, rank)
                                    : find_generation(*session.store, kTimes, rank);
    exchange_roster(session, time, info);
    return time.prefix;
  } catch (const Error& error) {
    if (was_an_earlier_store(info, time, error.code())) {
      return std::nullopt;
    }
    if (error.code() != ErrorCode::kInterrupted) {
      rendezvous::leave_after_failure(session);
    }
    throw;
  }
}

}  // namespace

RankMeeting meet_ranks(const rendezvous::RendezvousRequest& request) {
  const rendezvous::RosterKeys keys{.part = first_generation(kTimes, 0).prefix};
  const rendezvous::RendezvousInfo info = rendezvous::resolve_rendezvous(request);
  const rendezvous::LaunchInfo& launch_info = info.discovered.launch_info;
  while (true) {
    rendezvous::StoreSession session =
        rendezvous::connect_store(info.config, launch_info, info.deadline, keys);
    if (const std::optional<std::string> prefix = meet_others(session, info)) {
      has_met = true;
      return {.store = c10::make_intrusive<CoreStore>(
                  in_part(access_of(std::move(session)), *prefix), info.timeout),
              .rank = launch_info.rank,
              .world_size = launch_info.world_size,
              .presence = info.discovered.presence};
    }
  }
}

}  // namespace unisono::python
