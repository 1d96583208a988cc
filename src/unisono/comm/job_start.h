#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/comm/init.h"
#include "unisono/engine/backends.h"
#include "unisono/engine/native_engines.h"
#include "unisono/net/address.h"
#include "unisono/peers/diagnostics_store.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::comm {

/// Parameters of the start of a job on a rank.
struct JobOptions {
  base::Config config;
  rendezvous::LaunchInfo launch_info;
  std::chrono::milliseconds timeout;  ///< Default timeout of operations.
  Deadline deadline;                  ///< For the rendezvous.
  std::uint64_t generation = 0;
  BackendChoice backend = {};
  rendezvous::GivenStore store = {};  ///< If set, the ranks meet in this store.
  std::string wait_file = {};         ///< Path for LongWaits::open().
};

/// Connects to the job's store, where the ranks meet. The first step of the start.
[[nodiscard]] rendezvous::StoreSession connect_store(const JobOptions& options);

/// Returns this rank's entry in the roster. `endpoint` is the name of its Unix socket.
[[nodiscard]] rendezvous::RosterMember describe_self(const JobOptions& options,
                                                     const std::string& endpoint,
                                                     const net::Address& data_address);

/// Runs `make` before the rank joins. If `make` throws, the other ranks receive the error.
template <class Make>
auto prepare(const JobOptions& options, rendezvous::StoreSession& session, const Make& make)
    -> decltype(make()) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInterrupted) {
      rendezvous::fail_roster(*session.store,
                              describe_self(options, "", net::Address::loopback(0)),
                              fmt::format("failed: {}", error.what()),
                              {.generation = options.generation});
      rendezvous::leave_after_failure(session);
    }
    throw;
  }
}

/// The agreement of the ranks that have joined a job.
struct JoinedJob {
  transport::RankTable ranks;
  engine::Backend backend;
};

/// Joins the job. Throws as rendezvous::exchange_roster() does, and Error(kCorruptData) if a rank's
/// address is not an IP address.
[[nodiscard]] JoinedJob join(const JobOptions& options,
                             rendezvous::StoreSession& session,
                             const rendezvous::RosterMember& self,
                             const base::Logger& logger);

/// Returns the access of this rank's groups to the job's store. `session` must outlive it.
[[nodiscard]] peers::StoreAccess store_access(const rendezvous::StoreSession& session);

/// Meets the ranks of this node, which have joined. Throws the first error of any rank, like
/// NativeEngines::meet(), after it has reported the error to the other ranks and closed the
/// listener.
[[nodiscard]] shm::NodeMemory meet_node(const transport::RankTable& roster,
                                        rendezvous::StoreSession& session,
                                        engine::NativeEngines& engines,
                                        Fd& listener,
                                        Deadline deadline);

/// Publishes the reason for which this rank has no group although it has joined. Ranks that cannot
/// connect to this rank read the reason in the store.
void publish_failed_start(const transport::RankTable& roster,
                          const rendezvous::StoreSession& session,
                          const Error& error) noexcept;

/// Time for other ranks to read the reason, if this rank serves the store.
inline constexpr std::chrono::seconds kTimeToRead{1};

/// Returns the prefix of the keys of a group's ranks in the job's store.
[[nodiscard]] std::string store_prefix(const std::string& job, std::uint32_t group);

}  // namespace unisono::comm
