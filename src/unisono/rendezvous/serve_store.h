#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/net/address.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {

/// Location of the ranks' meeting in the store.
struct RosterKeys {
  std::string part = {};  ///< Prefix of the section, as in PrefixStore; "" for the whole store.
  std::uint64_t generation = 0;  ///< See ExchangeOptions.
};

/// Returns the address on which to serve a store that other ranks reach as `host`: the address of
/// `host` if this machine has it; otherwise all addresses of the machine, e.g. for the address of a
/// service, a translated address, or a name that resolves to several addresses, not yet, or to
/// loopback on this machine only.
[[nodiscard]] net::Address listen_address(const std::string& host,
                                          std::uint16_t port,
                                          bool has_secret);

/// Result of serve_store() on a process with rank 0.
struct ServedStore {
  std::unique_ptr<store::TcpStoreHost> host;  ///< Null if another process serves the store.
  /// Connection to the other process's store; null if this process serves the store.
  std::shared_ptr<store::TcpStore> of_twin;
};

/// Serves the job's store. If another process with rank 0 and the same world size serves it
/// already, connects to that store, so that exchange_roster() with `keys` reports both processes to
/// all ranks. With another world size the store is taken for another job's.
///
/// Throws Error(kSystem) if another program holds the port for 2 seconds, or if listening is not
/// permitted.
[[nodiscard]] ServedStore serve_store(const base::Config& config,
                                      const LaunchInfo& launch_info,
                                      const std::string& secret,
                                      Deadline deadline,
                                      const RosterKeys& keys);

}  // namespace unisono::rendezvous
