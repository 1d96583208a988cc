#include "unisono/rendezvous/serve_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/net/host.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/store/store.h"

namespace unisono::rendezvous {
namespace {

// Returns false for names that resolve to loopback on this machine only, such as the host's own
// name on Debian.
bool is_always_loopback(const std::string& host) {
  const std::optional<net::Address> numeric = net::Address::parse(host, 0);
  return host == "localhost" || (numeric && numeric->is_loopback());
}

net::Address store_address(const LaunchInfo& launch_info, bool has_secret) {
  const net::Address address =
      listen_address(launch_info.master_addr, launch_info.master_port, has_secret);
  const bool on_all = launch_info.has_many_addresses && !address.is_loopback();
  return on_all ? net::Address::any(address.family(), address.port()) : address;
}

Error cannot_serve(const LaunchInfo& launch_info, const std::string& reason) {
  return {ErrorCode::kSystem,
          fmt::format("rendezvous: rank 0 can't serve the store at {}: {}",
                      describe_place(launch_info),
                      reason)};
}

// Returns null if the port is in use; `in_use` then holds the message of the first attempt.
std::unique_ptr<store::TcpStoreHost> start_server(const base::Config& config,
                                                  const LaunchInfo& launch_info,
                                                  const std::string& secret,
                                                  std::string& in_use) {
  try {
    return std::make_unique<store::TcpStoreHost>(
        store::TcpServerOptions{.address = store_address(launch_info, !secret.empty()),
                                .secret = secret,
                                .job = launch_info.job,
                                .tls = config.tls,
                                .notes_turned_away = true,
                                .logger = base::Logger("store", config.log_level)});
  } catch (const net::PortInUse& error) {
    if (in_use.empty()) {
      in_use = error.what();
    }
    return nullptr;
  } catch (const Error& error) {
    // For example a privileged port, or an address that this machine no longer has.
    if (error.code() != ErrorCode::kSystem) {
      throw;
    }
    throw cannot_serve(launch_info, error.what());
  }
}

// Returns the section of the store that `keys` denote.
std::shared_ptr<store::Store> part_of(std::shared_ptr<store::Store> store, const RosterKeys& keys) {
  return keys.part.empty() ? std::move(store)
                           : std::make_shared<store::PrefixStore>(keys.part, std::move(store));
}

// A second rank 0 that was started at the same time may need this long to join its own store.
constexpr std::chrono::seconds kPatienceForATwin{2};

// Returns a connection to the store at the port in use if a rank 0 of an equal job serves the
// store. Returns null if the process at the port has ended. Otherwise throws an error that
// describes the process at the port.
std::shared_ptr<store::TcpStore> find_store_of_twin(store::TcpStoreOptions options,
                                                    const LaunchInfo& launch_info,
                                                    Deadline end,
                                                    const RosterKeys& keys,
                                                    const std::string& in_use) {
  std::string holder = "another job may use the port";
  options.if_refused = net::IfRefused::kGiveUp;
  try {
    auto store = std::make_shared<store::TcpStore>(options, end);
    RosterMember self;
    self.world_size = launch_info.world_size;
    if (const std::string other = describe_other_job(launch_info, *store); !other.empty()) {
      holder = other;
    } else if (wait_for_twin(*part_of(store, keys), self, end, {.generation = keys.generation})) {
      return store;
    }
  } catch (const Error& error) {
    // Any other error means that the port belongs to another program.
    if (error.code() == ErrorCode::kInterrupted) {
      throw;
    }
    if (error.code() == ErrorCode::kPeerLost && !end.has_passed()) {
      return nullptr;
    }
  }
  throw cannot_serve(launch_info, fmt::format("{}; {}", in_use, holder));
}

}  // namespace

net::Address listen_address(const std::string& host, std::uint16_t port, bool has_secret) {
  try {
    const std::vector<net::Address> addresses = net::resolve(host, port);
    const net::Address& address = addresses.front();
    const bool is_meant = address.is_loopback() ? !has_secret || is_always_loopback(host)
                                                : addresses.size() == 1 &&
                                                      net::has_address(net::interfaces(), address);
    const bool is_of_both_families =
        std::any_of(addresses.begin(), addresses.end(), [&](const net::Address& other) {
          return other.family() != address.family();
        });
    if (is_meant) {
      return address;
    }
    return is_of_both_families ? net::any_of_both_families(port)
                               : net::Address::any(address.family(), port);
  } catch (const Error&) {
    // The name does not resolve yet. If that remains so, connecting reports the problem at the
    // deadline.
    return net::any_of_both_families(port);
  }
}

ServedStore serve_store(const base::Config& config,
                        const LaunchInfo& launch_info,
                        const std::string& secret,
                        Deadline deadline,
                        const RosterKeys& keys) {
  constexpr std::chrono::milliseconds kPause{50};
  const Deadline end = earlier(deadline, Deadline::after(kPatienceForATwin));
  // Message of the first attempt. A later message may name a process that has ended since.
  std::string in_use;
  while (true) {
    if (auto host = start_server(config, launch_info, secret, in_use)) {
      return {.host = std::move(host), .of_twin = nullptr};
    }
    if (auto of_twin = find_store_of_twin(
            store_options(config, launch_info, secret), launch_info, end, keys, in_use)) {
      return {.host = nullptr, .of_twin = std::move(of_twin)};
    }
    interruptible_sleep_until(earlier(end, Deadline::after(kPause)));
  }
}

}  // namespace unisono::rendezvous
