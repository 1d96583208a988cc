#include "unisono/rendezvous/serve_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruption.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/store_client.h"
#include "unisono/store/prefix_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_server.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

// Not a name that leads to loopback here and elsewhere to this machine, as Debian's for itself.
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

// Null where the port is in use: what is there is in `in_use`, unless an earlier try has said it.
std::unique_ptr<store::TcpStoreHost> start_server(const Config& config,
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
                                .logger = Logger("store", config.log_level)});
  } catch (const net::PortInUse& error) {
    if (in_use.empty()) {
      in_use = error.what();
    }
    return nullptr;
  } catch (const Error& error) {
    // A port that only root may take, or an address that has gone from this machine.
    if (error.code() != ErrorCode::kSystem) {
      throw;
    }
    throw cannot_serve(launch_info, error.what());
  }
}

// The part of the store that `keys` are of.
std::shared_ptr<store::Store> part_of(std::shared_ptr<store::Store> store, const RosterKeys& keys) {
  return keys.part.empty() ? std::move(store)
                           : std::make_shared<store::PrefixStore>(keys.part, std::move(store));
}

// Another that was started in the same moment may have to come to its store itself first.
constexpr std::chrono::seconds kPatienceForATwin{2};

// The store at the port that is in use, if a rank 0 of such a job is there: the one that serves it.
// Null where whoever it was has ended; else throws what is there.
std::shared_ptr<store::TcpStore> find_store_of_twin(store::TcpStoreOptions options,
                                                    const LaunchInfo& launch_info,
                                                    Deadline end,
                                                    const RosterKeys& keys,
                                                    const std::string& in_use) {
  std::string holder = "another job may use the port";
  options.if_refused = net::IfRefused::kGiveUp;
  try {
    auto store = std::make_shared<store::TcpStore>(options, end);
    Member self;
    self.world_size = launch_info.world_size;
    if (const std::string other = describe_other_job(launch_info, *store); !other.empty()) {
      holder = other;
    } else if (wait_for_twin(*part_of(store, keys), self, end, {.generation = keys.generation})) {
      return store;
    }
  } catch (const Error& error) {
    // Else it is something else.
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
    // A name that is not known yet: connecting will say so when its time is up.
    return net::any_of_both_families(port);
  }
}

ServedStore serve_store(const Config& config,
                        const LaunchInfo& launch_info,
                        const std::string& secret,
                        Deadline deadline,
                        const RosterKeys& keys) {
  constexpr std::chrono::milliseconds kPause{50};
  const Deadline end = earlier(deadline, Deadline::after(kPatienceForATwin));
  std::string in_use;  // As the first try says: a later one may name who has ended since.
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
