#pragma once

#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/rendezvous/assignment.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_host.h"

namespace unisono::rendezvous {

/// A rank's way to the others.
struct Meeting {
  Assignment assignment;
  std::string secret;                         ///< Empty for a job on loopback without one.
  bool tls = false;                           ///< With the store.
  std::unique_ptr<store::TcpStoreHost> host;  ///< On rank 0, unless the launcher has the store.
  std::shared_ptr<store::Store> store;        ///< Shared by all who ask the store.
  /// The store's connection, to be watched for its end.
  int store_fd = -1;
  /// Numeric address of this machine by which the store was reached: for data listeners.
  std::string local_ip;
};

/// Connects to the job's store; rank 0 serves it first, where that is nobody else's task. Says
/// that it still waits after config.stall, twice that, and so on.
///
/// Throws Error: kSystem at once on rank 0 when the port is in use, kTimeout with the address and
/// the reason, kInvalidArgument when there has to be a secret, kUnauthenticated, kIncompatible.
[[nodiscard]] Meeting meet(const Config& config, const Assignment& assignment, Deadline deadline);

/// Another connection to the store of `meeting`, whose requests take at most `io_timeout` each.
///
/// Throws Error(kTimeout) when it can't be made in that time.
[[nodiscard]] std::shared_ptr<store::Store> connect_again(const Meeting& meeting,
                                                          std::chrono::milliseconds io_timeout);

}  // namespace unisono::rendezvous
