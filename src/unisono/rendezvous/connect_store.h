#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/serve_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_host.h"

namespace unisono::rendezvous {

/// Another connection to a store, whose requests take at most so long each.
using ConnectAgain = std::function<std::shared_ptr<store::Store>(std::chrono::milliseconds)>;

/// A rank's way to the others.
struct StoreSession {
  LaunchInfo launch_info;
  std::string secret;                         ///< Empty for a job on loopback without one.
  std::unique_ptr<store::TcpStoreHost> host;  ///< On rank 0, unless the launcher has the store.
  std::shared_ptr<store::Store> store;        ///< Shared by all who ask the store.
  /// Throws Error: kTimeout when there is none in that time, kPeerLost at once when it is gone.
  ConnectAgain connect_again;
  /// The store's connection where no rank serves it, to be watched for its end; else -1.
  int store_fd = -1;
  /// A process of rank 0 was here before, and serves the store.
  bool is_second_rank_0 = false;
  /// Numeric address of this machine by which the store was reached: for data listeners.
  std::string local_ip;
};

/// Connects to the job's store; rank 0 serves it first, where that is nobody else's task. Whose job
/// has a name (LaunchInfo::job) joins no store of a job of another name, and writes nothing there.
///
/// Throws Error as serve_store() and connect_as_client() do; kInvalidArgument when there has to be
/// a secret.
[[nodiscard]] StoreSession connect_store(const Config& config,
                                         const LaunchInfo& launch_info,
                                         Deadline deadline,
                                         const RosterKeys& keys = {});

/// Leaves a meeting that has failed. On rank 0 it waits for the others, no longer than that: those
/// who look for the reason in the store a moment later must find it.
void leave_after_failure(StoreSession& session,
                         std::chrono::seconds longest = std::chrono::seconds(5));

/// A store that the program brings, through which ranks meet.
struct GivenStore {
  std::shared_ptr<store::Store> store;
  ConnectAgain connect_again = {};  ///< Null where there is but the one connection.
  /// The job's; nothing where it is to be found as for any job.
  std::optional<std::string> secret = {};
  std::string local_ip = {};  ///< As in StoreSession; empty where it is not known.
  int fd = -1;                ///< As StoreSession::store_fd.
};

/// The same in `given`; of `launch_info` rank and world size count. Connects to nobody. A job
/// without a secret stays on loopback.
///
/// Throws Error(kInvalidArgument) when UNISONO_INTERFACE or the secret's file is wrong.
[[nodiscard]] StoreSession use_store(const GivenStore& given,
                                     const Config& config,
                                     const LaunchInfo& launch_info);

/// Where ranks of other nodes connect to this one: at the address and in the ports that the
/// settings want. A job without a secret stays on loopback.
///
/// Throws Error: kInvalidArgument when there is no such interface, kSystem when no port is free.
[[nodiscard]] Fd listen_for_data(const Config& config, const StoreSession& session);

}  // namespace unisono::rendezvous
