#include "unisono/rendezvous/store_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/port_holder.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

// What is odd about the address at which this rank serves the store; empty where nothing is.
std::string describe_foreign_host(const std::string& host) {
  try {
    const std::vector<net::Interface> interfaces = net::interfaces();
    const bool leads_here = std::ranges::any_of(
        net::resolve(host, 0),
        [&](const net::Address& address) { return net::is_own_address(interfaces, address); });
    return leads_here
               ? ""
               : fmt::format(
                     "; {} is none of this machine's addresses: {}; as a service's or a translated "
                     "one it has to lead here",
                     host,
                     net::describe(interfaces));
  } catch (const Error&) {
    return "";  // What failed is said as the reason.
  }
}

// Who listens at the store's port: empty where it is on another machine, or /proc does not tell.
std::string find_server(const LaunchInfo& launch_info) {
  return net::is_this_machine(launch_info.master_addr)
             ? net::find_port_holder(launch_info.master_port)
             : "";
}

// For who is connected to somebody that says nothing.
std::string advice_on_silence(const LaunchInfo& launch_info) {
  const std::string server = find_server(launch_info);
  return fmt::format(
      "; {}: if that is not {}, end it or give the job another port; if it is, it is "
      "stopped or too busy",
      server.empty() ? fmt::format("\"ss -tlnp sport = {}\" on its machine names who listens there",
                                   launch_info.master_port)
                     : server + " listens there",
      launch_info.uses_agent_store ? "the launcher" : "rank 0");
}

// A name may come later than its users, but who has mistyped it is to hear of it soon.
constexpr std::chrono::milliseconds kPatienceForAName = std::chrono::seconds(1);

bool leads_nowhere(const std::string& host) {
  try {
    return net::resolve(host, 0).empty();
  } catch (const Error&) {
    return true;
  }
}

// True where the machine says that nobody listens there. What of its addresses can't be reached
// from here, as without IPv6, says nothing.
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

// A process that ends closes its connections before it stops to listen, and may do so slowly.
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

// What is to be said when the other side does not let this rank in, or is no store.
Error not_let_in(const LaunchInfo& launch_info, const Error& reason) {
  if (reason.code() == ErrorCode::kPeerLost && has_ended(launch_info)) {
    return lost_store(launch_info, reason);
  }
  return {reason.code(),
          fmt::format("rendezvous: rank {} was not let into the store at {}: {}{}",
                      launch_info.rank,
                      describe_place(launch_info),
                      reason.what(),
                      advice_for(launch_info, reason.code()))};
}

// Before anything is written there.
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

store::TcpStoreOptions store_options(const Config& config,
                                     const LaunchInfo& launch_info,
                                     const std::string& secret) {
  return {.host = launch_info.master_addr,
          .port = launch_info.master_port,
          .secret = secret,
          .tls = config.tls,
          .rank = launch_info.rank};
}

std::shared_ptr<store::TcpStore> connect_as_client(const Config& config,
                                                   const LaunchInfo& launch_info,
                                                   const std::string& secret,
                                                   Deadline deadline) {
  const Logger logger(fmt::format("rank {}", launch_info.rank), config.log_level);
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
      logger.debug("rendezvous: has reached the store at " + describe_place(launch_info));
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
            fmt::format("rendezvous: rank {} was turned out of the store at {}: {}",
                        launch_info.rank,
                        describe_place(launch_info),
                        reason.what())};
  }
  const char* server = launch_info.uses_agent_store ? "the launcher" : "rank 0";
  return {ErrorCode::kPeerLost,
          fmt::format("rendezvous: rank {} has lost the store at {}: {}, which serves it, has "
                      "ended; see what {} wrote ({})",
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

}  // namespace unisono::rendezvous
