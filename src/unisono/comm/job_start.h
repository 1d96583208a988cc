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
#include "unisono/comm/backend_choice.h"
#include "unisono/engine/native_engines.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::comm {

/// How a rank starts its job.
struct JobOptions {
  Config config;
  rendezvous::LaunchInfo launch_info;
  std::chrono::milliseconds timeout;  ///< Of operations that are given none.
  Deadline deadline;                  ///< For the rendezvous.
  std::uint64_t generation = 0;
  BackendChoice backend = {};
  rendezvous::GivenStore store = {};  ///< If there is one, ranks meet in it.
  std::string wait_file = {};         ///< As LongWaits opens it.
};

/// Meets the others at the store: the first step.
[[nodiscard]] rendezvous::StoreSession connect_store(const JobOptions& options);

[[nodiscard]] rendezvous::Member describe_self(const JobOptions& options,
                                               const std::string& endpoint,
                                               const net::Address& data_address);

/// Makes what a rank needs before it joins: where it can't have it, the others hear why.
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

/// Joins. Throws as rendezvous::exchange_roster() does.
[[nodiscard]] rendezvous::Roster exchange_roster(const JobOptions& options,
                                                 rendezvous::StoreSession& session,
                                                 const rendezvous::Member& self);

/// Meets the ranks of this node, which have joined. Throws as NativeEngines::meet() does, for the
/// first reason that a rank had, tells the others, and closes the listener.
[[nodiscard]] shm::NodeMemory meet_node(const rendezvous::Roster& roster,
                                        rendezvous::StoreSession& session,
                                        engine::NativeEngines& engines,
                                        Fd& listener,
                                        Deadline deadline);

/// Writes down why this rank has no group though it has joined, for those that have not met it:
/// they find nobody where they look for it, and then look into the store.
void publish_failed_start(const rendezvous::Roster& roster,
                          const rendezvous::StoreSession& session,
                          const Error& error) noexcept;

/// How long they have for that where this rank serves the store.
inline constexpr std::chrono::seconds kTimeToRead{1};

/// What the keys of a group's ranks in the job's store begin with.
[[nodiscard]] std::string store_prefix(const std::string& job, std::uint32_t group);

}  // namespace unisono::comm
