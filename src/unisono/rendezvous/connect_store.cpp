#include "unisono/rendezvous/connect_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"
#include "unisono/net/ports.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/this_node.h"

namespace unisono::rendezvous {
namespace {

// Describes a problem of the address at which this rank serves the store; "" if there is no
// problem.
std::string describe_foreign_host(const std::string& host) {
  try {
    const std::vector<net::Interface> interfaces = net::interfaces();
    const bool leads_here = std::ranges::any_of(
        net::resolve(host, 0),
        [&](const net::Address& address) { return net::is_own_address(interfaces, address); });
    return leads_here ? ""
                      : fmt::format(
                            "; {} is not an address of this machine: {}; the address of a service, "
                            "or a translated one, must lead here",
                            host,
                            net::describe(interfaces));
  } catch (const Error&) {
    return "";  // The message already contains the failure, as the reason.
  }
}

// Returns the process that listens on the store's port; "" if on another machine or unknown to
// /proc.
std::string find_server(const LaunchInfo& launch_info) {
  return net::is_this_machine(launch_info.master_addr)
             ? net::find_port_holder(launch_info.master_port)
             : "";
}

// Advice for a rank that is connected to a process that does not reply.
std::string advice_on_silence(const LaunchInfo& launch_info) {
  const std::string server = find_server(launch_info);
  return fmt::format(
      "; {}: if that is not {}, end it or give the job another port; if it is, it is "
      "stopped or too busy",
      server.empty()
          ? fmt::format(
                "\"ss -tlnp sport = {}\" on its machine names the process that listens there",
                launch_info.master_port)
          : server + " listens there",
      launch_info.uses_agent_store ? "the launcher" : "rank 0");
}

// A name may become resolvable later, but a misspelled name should cause a warning soon.
constexpr std::chrono::milliseconds kPatienceForAName = std::chrono::seconds(1);

bool leads_nowhere(const std::string& host) {
  try {
    return net::resolve(host, 0).empty();
  } catch (const Error&) {
    return true;
  }
}

// Returns true if the machine refuses connections at the port. Addresses that this machine cannot
// reach, e.g. without IPv6, are ignored.
bool is_refused(const LaunchInfo& launch_info) {
  constexpr std::chrono::seconds kPatience{1};
  bool is_refused = false;
  const Deadline deadline = Deadline::after(kPatience);
  for (const net::Address& address :
       net::resolve(launch_info.master_addr, launch_info.master_port)) {
    const int obstacle = net::find_obstacle(address, deadline);
    if (obstacle == 0) {
      return false;
    }
    is_refused = is_refused || obstacle == ECONNREFUSED;
  }
  return is_refused;
}

// A process that exits closes its connections before its listener, and may do so slowly.
bool has_ended(const LaunchInfo& launch_info) {
  constexpr std::chrono::milliseconds kPatience{300};
  constexpr std::chrono::milliseconds kBetweenLooks{20};
  try {
    const Deadline deadline = Deadline::after(kPatience);
    while (!is_refused(launch_info)) {
      if (deadline.has_passed()) {
        return false;
      }
      std::this_thread::sleep_for(kBetweenLooks);
    }
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) {
      throw;
    }
    return false;
  }
}

bool is_refusal(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kUnauthenticated ||
         code == ErrorCode::kIncompatible || code == ErrorCode::kCorruptData;
}

std::string advice_for(const LaunchInfo& launch_info, ErrorCode code) {
  if (code == ErrorCode::kUnauthenticated) {
    return "; give all ranks the same secret, or, where another job meets there, another port";
  }
  return code == ErrorCode::kCorruptData
             ? fmt::format(
                   "; something else may listen there: \"ss -tlnp sport = {}\" on its "
                   "machine names it",
                   launch_info.master_port)
             : "";
}

// Returns the error for a server that does not admit this rank or is not a store.
Error not_let_in(const LaunchInfo& launch_info, const Error& reason) {
  if (reason.code() == ErrorCode::kPeerLost && has_ended(launch_info)) {
    return lost_store(launch_info, reason);
  }
  return {reason.code(),
          fmt::format("rendezvous: rank {} was not admitted to the store at {}: {}{}",
                      launch_info.rank,
                      describe_place(launch_info),
                      reason.what(),
                      advice_for(launch_info, reason.code()))};
}

// Called before any key is written to the store.
void check_job(const LaunchInfo& launch_info, const store::TcpStore& store) {
  if (const std::string other = describe_other_job(launch_info, store); !other.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rendezvous: rank {} can't meet the others at {}: {}",
                            launch_info.rank,
                            describe_place(launch_info),
                            other));
  }
}

}  // namespace

store::TcpStoreOptions store_options(const base::Config& config,
                                     const LaunchInfo& launch_info,
                                     const std::string& secret) {
  return {.host = launch_info.master_addr,
          .port = launch_info.master_port,
          .secret = secret,
          .tls = config.tls,
          .rank = launch_info.rank};
}

std::shared_ptr<store::TcpStore> connect_as_client(const base::Config& config,
                                                   const LaunchInfo& launch_info,
                                                   const std::string& secret,
                                                   Deadline deadline) {
  const base::Logger logger(fmt::format("rank {}", launch_info.rank), config.log_level);
  const auto start = Deadline::Clock::now();
  auto patience = leads_nowhere(launch_info.master_addr) ? std::min(config.stall, kPatienceForAName)
                                                         : config.stall;
  for (;; patience = std::max(config.stall, patience * 2)) {
    const Deadline next = earlier(deadline, Deadline::at(start + patience));
    std::string reason;
    try {
      auto store =
          std::make_shared<store::TcpStore>(store_options(config, launch_info, secret), next);
      check_job(launch_info, *store);
      logger.debug("rendezvous: connected to the store at " + describe_place(launch_info));
      return store;
    } catch (const store::ServerUnresponsiveError& error) {
      reason = error.what() + advice_on_silence(launch_info);
    } catch (const Error& error) {
      if (is_refusal(error.code())) {
        throw not_let_in(launch_info, error);
      }
      if (error.code() != ErrorCode::kTimeout) {
        throw;
      }
      reason = error.what();
    }
    const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
    const std::string message = fmt::format(
        "rendezvous: rank {} has tried for {:.1f} s to reach the store at {}{}: {}{}",
        launch_info.rank,
        spent.count(),
        describe_place(launch_info),
        launch_info.uses_agent_store ? "" : ", which rank 0 serves",
        reason,
        serves_store(launch_info) ? describe_foreign_host(launch_info.master_addr) : "");
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout, message);
    }
    logger.warning(message);
  }
}

Error lost_store(const LaunchInfo& launch_info, const Error& reason) {
  if (dynamic_cast<const store::ServerClosedError*>(&reason) != nullptr) {
    return {ErrorCode::kPeerLost,
            fmt::format("rendezvous: rank {} was disconnected by the store at {}: {}",
                        launch_info.rank,
                        describe_place(launch_info),
                        reason.what())};
  }
  const char* server = launch_info.uses_agent_store ? "the launcher" : "rank 0";
  return {ErrorCode::kPeerLost,
          fmt::format("rendezvous: rank {} has lost the store at {}: {}, which serves it, has "
                      "ended; see the output of {} ({})",
                      launch_info.rank,
                      describe_place(launch_info),
                      server,
                      server,
                      reason.what())};
}

std::string describe_other_job(const LaunchInfo& launch_info, const store::TcpStore& store) {
  return are_different_jobs(launch_info.job, store.job())
             ? fmt::format(
                   "another job meets there, {}, and this one is {}; give them different "
                   "MASTER_PORTs",
                   store.job(),
                   launch_info.job)
             : "";
}

StoreSession connect_store(const base::Config& config,
                           const LaunchInfo& launch_info,
                           Deadline deadline,
                           const RosterKeys& keys) {
  StoreSession session;
  session.launch_info = launch_info;
  session.launch_info.master_addr = meeting_host(launch_info);
  session.secret = find_secret(config, session.launch_info);
  std::shared_ptr<store::TcpStore> store;
  if (serves_store(launch_info)) {
    ServedStore served = serve_store(config, session.launch_info, session.secret, deadline, keys);
    session.host = std::move(served.host);
    session.is_second_rank_0 = served.of_twin != nullptr;
    store = std::move(served.of_twin);
  }
  if (store == nullptr) {
    store = connect_as_client(config, session.launch_info, session.secret, deadline);
  }
  session.store_fd = launch_info.uses_agent_store ? store->fd() : -1;
  session.local_ip = store->local_address().ip();
  session.store = store;
  session.connect_again = [options = store_options(config, session.launch_info, session.secret)](
                              std::chrono::milliseconds io_timeout) {
    store::TcpStoreOptions again = options;
    again.io_timeout = io_timeout;
    again.if_refused = net::IfRefused::kGiveUp;
    return std::make_shared<store::TcpStore>(again, Deadline::after(io_timeout));
  };
  return session;
}

void leave_after_failure(StoreSession& session, std::chrono::seconds longest) {
  session.store.reset();
  if (session.host != nullptr) {
    session.host->wait_until_left(Deadline::after(longest));
  }
}

StoreSession use_store(const GivenStore& given,
                       const base::Config& config,
                       const LaunchInfo& launch_info) {
  StoreSession session;
  session.launch_info = launch_info;
  session.secret = given.secret ? *given.secret : find_secret(config, net::loopback_host());
  session.store = given.store;
  session.store_fd = given.fd;
  session.connect_again = given.connect_again;
  if (session.connect_again == nullptr) {
    session.connect_again = [store = given.store](std::chrono::milliseconds) { return store; };
  }
  if (session.secret.empty()) {
    session.local_ip = net::loopback_host();
  } else if (given.local_ip.empty()) {
    session.local_ip =
        choose_own_address(config.interface, net::interfaces(), net::default_route_address()).ip();
  } else {
    session.local_ip = given.local_ip;
  }
  return session;
}

Fd listen_for_data(const base::Config& config, const StoreSession& session) {
  std::optional<net::Address> address = net::Address::parse(session.local_ip, 0);
  UNISONO_CHECK(address.has_value(),
                fmt::format("the store was reached from \"{}\"", session.local_ip));
  if (!config.interface.empty() && !session.secret.empty()) {
    address = choose_data_interface(config.interface, net::interfaces(), *address).address;
  }
  return config.ports ? net::listen_tcp(*address, *config.ports) : net::listen_tcp(*address);
}

}  // namespace unisono::rendezvous
