#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {

/// Where in the store the ranks are to meet.
struct RosterKeys {
  std::string part = {};         ///< The prefix of that part, as in PrefixStore; empty: all of it.
  std::uint64_t generation = 0;  ///< As in ExchangeOptions.
};

/// Where a store is served that others know as `host`: at just that address if it is one of this
/// machine, else on all of the machine's, as for a service's address, a translated one, or a name
/// that leads to several addresses, nowhere yet, or to loopback here alone.
[[nodiscard]] net::Address listen_address(const std::string& host,
                                          std::uint16_t port,
                                          bool has_secret);

/// The job's store, as a process of rank 0 comes to it.
struct ServedStore {
  std::unique_ptr<store::TcpStoreHost> host;  ///< Null where another process serves the store.
  std::shared_ptr<store::TcpStore> of_twin;   ///< Then a connection to that one's, else null.
};

/// Serves the job's store. A second process of rank 0 is connected to the first one's, where
/// exchange_roster() by `keys` names both to all: only where the world sizes are the same, as it
/// would be another job's else.
///
/// Throws Error: kSystem when something else has the port for 2 seconds, or may not be listened on.
[[nodiscard]] ServedStore serve_store(const Config& config,
                                      const LaunchInfo& launch_info,
                                      const std::string& secret,
                                      Deadline deadline,
                                      const RosterKeys& keys);

}  // namespace unisono::rendezvous
