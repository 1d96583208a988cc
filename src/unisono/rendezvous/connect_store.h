#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/serve_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {

/// Returns the options for this rank's connection to the job's store.
[[nodiscard]] store::TcpStoreOptions store_options(const base::Config& config,
                                                   const LaunchInfo& launch_info,
                                                   const std::string& secret);

/// Connects to the job's store, retrying until the store exists. Logs a warning after config.stall,
/// twice that time, and so on; for a name that does not resolve yet, also after a second.
///
/// Blocks until the deadline at most. Throws Error(kTimeout) with the address and the reason,
/// Error(kInvalidArgument) if the store belongs to another job, Error(kUnauthenticated),
/// Error(kIncompatible), and Error(kPeerLost) if the store has ended or the server is not a store.
[[nodiscard]] std::shared_ptr<store::TcpStore> connect_as_client(const base::Config& config,
                                                                 const LaunchInfo& launch_info,
                                                                 const std::string& secret,
                                                                 Deadline deadline);

/// Returns the Error(kPeerLost) of a rank that lost the connection to the job's store, because of
/// `reason`, before the meeting was complete.
[[nodiscard]] Error lost_store(const LaunchInfo& launch_info, const Error& reason);

/// Describes a store that belongs to a job with another name; "" if the job is the same.
[[nodiscard]] std::string describe_other_job(const LaunchInfo& launch_info,
                                             const store::TcpStore& store);

/// Opens another connection to a store. The duration limits each request.
using ConnectAgain = std::function<std::shared_ptr<store::Store>(std::chrono::milliseconds)>;

/// A rank's access to the job's store, and the address for its data listener. Owned by the rank
/// that meets the others; rank 0's session also owns the server.
struct StoreSession {
  LaunchInfo launch_info;
  std::string secret;  ///< The job's secret. Empty for a job on loopback without a secret.
  /// The server. Only on rank 0, and only if the launcher does not serve the store.
  std::unique_ptr<store::TcpStoreHost> host;
  std::shared_ptr<store::Store> store;  ///< Shared by all users of the store in this process.
  /// Throws Error(kTimeout) if no connection is made in time, Error(kPeerLost) at once if the store
  /// is gone.
  ConnectAgain connect_again;
  /// The socket of the store's connection if the launcher serves the store, to be polled for its
  /// end; otherwise -1.
  int store_fd = -1;
  /// True if another process with rank 0 was here first and serves the store.
  bool is_second_rank_0 = false;
  /// Numeric address of this machine from which the store was reached; used for data listeners.
  std::string local_ip;
};

/// Connects to the job's store. Rank 0 serves the store first, unless the launcher does. If the job
/// has a name (LaunchInfo::job), the store of a job with another name is rejected before any key is
/// written.
///
/// Blocks until the deadline at most. Throws the errors of serve_store() and connect_as_client(),
/// and Error(kInvalidArgument) if a secret is required.
[[nodiscard]] StoreSession connect_store(const base::Config& config,
                                         const LaunchInfo& launch_info,
                                         Deadline deadline,
                                         const RosterKeys& keys = {});

/// Leaves a meeting that has failed. Rank 0 waits until the other ranks have disconnected, for
/// `longest` at most: ranks that look at the store a moment later must find the reason.
void leave_after_failure(StoreSession& session,
                         std::chrono::seconds longest = std::chrono::seconds(5));

/// A store that the program provides as the meeting point of the ranks.
struct GivenStore {
  std::shared_ptr<store::Store> store;
  ConnectAgain connect_again = {};  ///< Null if the given store is the only connection.
  /// The job's secret. std::nullopt: search for the secret as in other jobs.
  std::optional<std::string> secret = {};
  std::string local_ip = {};  ///< See StoreSession. Empty if unknown.
  int fd = -1;                ///< See StoreSession::store_fd.
};

/// Makes a StoreSession from a given store. Only the rank and the world size in `launch_info`
/// matter. Opens no connection. A job without a secret uses loopback only.
///
/// Throws Error(kInvalidArgument) if UNISONO_INTERFACE or the secret's file is invalid.
[[nodiscard]] StoreSession use_store(const GivenStore& given,
                                     const base::Config& config,
                                     const LaunchInfo& launch_info);

/// Listens for connections from ranks of other nodes, on the address and in the ports of the
/// settings. A job without a secret uses loopback only.
///
/// Throws Error(kInvalidArgument) if there is no such interface, Error(kSystem) if no port is free.
[[nodiscard]] Fd listen_for_data(const base::Config& config, const StoreSession& session);

}  // namespace unisono::rendezvous
