#pragma once

#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {

/// How this rank connects to the job's store.
[[nodiscard]] store::TcpStoreOptions store_options(const Config& config,
                                                   const LaunchInfo& launch_info,
                                                   const std::string& secret);

/// A connection to the job's store, tried again while there is none. Says that it still waits after
/// config.stall, twice that, and so on; for a name that leads nowhere yet after a second, too.
///
/// Throws Error: kTimeout with the address and the reason, kInvalidArgument when another job is
/// there, kUnauthenticated, kIncompatible, kPeerLost when the store has ended or is none.
[[nodiscard]] std::shared_ptr<store::TcpStore> connect_as_client(const Config& config,
                                                                 const LaunchInfo& launch_info,
                                                                 const std::string& secret,
                                                                 Deadline deadline);

/// What a rank says that lost the connection to the job's store, because of `reason`, before all
/// had met. Its code is kPeerLost.
[[nodiscard]] Error lost_store(const LaunchInfo& launch_info, const Error& reason);

/// What a rank says whose store is that of a job of another name; empty where it is of this one.
[[nodiscard]] std::string describe_other_job(const LaunchInfo& launch_info,
                                             const store::TcpStore& store);

}  // namespace unisono::rendezvous
