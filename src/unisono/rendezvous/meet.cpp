#include "unisono/rendezvous/meet.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
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
#include "unisono/rendezvous/assignment.h"
#include "unisono/rendezvous/exchange_roster.h"
#include "unisono/rendezvous/interface_choice.h"
#include "unisono/rendezvous/launched_job.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/store/prefix_store.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_server.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr std::chrono::seconds kLingerTimeout{5};

store::TcpStoreOptions store_options(const Config& config,
                                     const Assignment& assignment,
                                     const std::string& secret) {
  return {.host = assignment.master_addr,
          .port = assignment.master_port,
          .secret = secret,
          .tls = config.tls,
          .rank = assignment.rank};
}

// Not a name that leads to loopback here and elsewhere to this machine, as Debian's for itself.
bool is_always_loopback(const std::string& host) {
  const std::optional<net::Address> numeric = net::Address::parse(host, 0);
  return host == "localhost" || (numeric && numeric->is_loopback());
}

bool serves_store(const Assignment& assignment) {
  return assignment.rank == 0 && !assignment.uses_agent_store;
}

// What is odd about the address at which this rank serves the store; empty where nothing is.
std::string describe_foreign_host(const std::string& host) {
  try {
    const std::vector<net::Interface> interfaces = net::interfaces();
    for (const net::Address& address : net::resolve(host, 0)) {
      if (net::is_own_address(interfaces, address)) {
        return "";
      }
    }
    return fmt::format(
        "; {} is none of this machine's addresses: {}; as a service's or a translated one it has "
        "to lead here",
        host,
        net::describe(interfaces));
  } catch (const Error&) {
    return "";  // What failed is said as the reason.
  }
}

net::Address store_address(const Assignment& assignment, bool has_secret) {
  const net::Address address =
      listen_address(assignment.master_addr, assignment.master_port, has_secret);
  const bool on_all = assignment.has_many_addresses && !address.is_loopback();
  return on_all ? net::Address::any(address.family(), address.port()) : address;
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

// True where the machine says that nobody listens there any more. What of its addresses can't be
// reached from here, as without IPv6, says nothing.
bool has_ended(const Assignment& assignment) {
  constexpr std::chrono::seconds kPatience{1};
  bool is_refused = false;
  try {
    const Deadline deadline = Deadline::after(kPatience);
    for (const net::Address& address :
         net::resolve(assignment.master_addr, assignment.master_port)) {
      const int obstacle = net::find_obstacle(address, deadline);
      if (obstacle == 0) {
        return false;
      }
      is_refused = is_refused || obstacle == ECONNREFUSED;
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInterrupted) {
      throw;
    }
    return false;
  }
  return is_refused;
}

bool is_refusal(ErrorCode code) {
  return code == ErrorCode::kPeerLost || code == ErrorCode::kUnauthenticated ||
         code == ErrorCode::kIncompatible || code == ErrorCode::kCorruptData;
}

std::string advice_for(const Assignment& assignment, ErrorCode code) {
  if (code == ErrorCode::kUnauthenticated) {
    return "; give all ranks the same secret, or, where another job meets there, another port";
  }
  return code == ErrorCode::kCorruptData
             ? fmt::format(
                   "; something else may listen there: \"ss -tlnp sport = {}\" on its "
                   "machine names it",
                   assignment.master_port)
             : "";
}

// What is to be said when the other side does not let this rank in, or is no store.
Error not_let_in(const Assignment& assignment, const Error& reason) {
  if (reason.code() == ErrorCode::kPeerLost && has_ended(assignment)) {
    return lost_store(assignment, reason);
  }
  return {reason.code(),
          fmt::format("rendezvous: rank {} was not let into the store at {}: {}{}",
                      assignment.rank,
                      describe_place(assignment),
                      reason.what(),
                      advice_for(assignment, reason.code()))};
}

std::unique_ptr<store::TcpStoreHost> serve_store(const Config& config,
                                                 const Assignment& assignment,
                                                 const std::string& secret) {
  return std::make_unique<store::TcpStoreHost>(
      store::TcpServerOptions{.address = store_address(assignment, !secret.empty()),
                              .secret = secret,
                              .job = assignment.job,
                              .tls = config.tls,
                              .notes_turned_away = true,
                              .logger = Logger("store", config.log_level)});
}

std::string describe_jobs(const Assignment& assignment, const store::TcpStore& store) {
  return fmt::format(
      "another job meets there, {}, and this one is {}; give them different MASTER_PORTs",
      store.job(),
      assignment.job);
}

Error port_in_use(const Assignment& assignment,
                  const net::PortInUse& error,
                  const std::string& holder) {
  return {error.code(),
          fmt::format("rendezvous: rank 0 can't serve the store at {}: {}; {}",
                      describe_place(assignment),
                      error.what(),
                      holder)};
}

std::shared_ptr<store::Store> part_of(std::shared_ptr<store::Store> store,
                                      const MeetingKeys& keys) {
  return keys.part.empty() ? std::move(store)
                           : std::make_shared<store::PrefixStore>(keys.part, std::move(store));
}

// Another that was started in the same moment may have to come to its store itself first.
constexpr std::chrono::seconds kPatienceForATwin{2};

// The store at the port that is in use, if a rank 0 of such a job is there: the one that serves it.
// Null where whoever it was has ended; else throws what is there.
std::shared_ptr<store::TcpStore> find_store_of_twin(store::TcpStoreOptions options,
                                                    const Assignment& assignment,
                                                    Deadline end,
                                                    const MeetingKeys& keys,
                                                    const net::PortInUse& in_use) {
  std::string holder = "another job may use the port";
  options.if_refused = net::IfRefused::kGiveUp;
  try {
    auto store = std::make_shared<store::TcpStore>(options, end);
    Member self;
    self.world_size = assignment.world_size;
    if (are_different_jobs(assignment.job, store->job())) {
      holder = describe_jobs(assignment, *store);
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
  throw port_in_use(assignment, in_use, holder);
}

// Nothing where the store is served now.
std::optional<net::PortInUse> try_to_serve(const Config& config, Meeting& meeting) {
  try {
    meeting.host = serve_store(config, meeting.assignment, meeting.secret);
    return std::nullopt;
  } catch (const net::PortInUse& error) {
    return error;
  }
}

// Serves the store, or has the meeting use the one of a rank 0 that was here before.
void serve_or_join_twin(const Config& config,
                        Deadline deadline,
                        const MeetingKeys& keys,
                        Meeting& meeting,
                        std::shared_ptr<store::TcpStore>& store) {
  constexpr std::chrono::milliseconds kPause{50};
  const Deadline end = earlier(deadline, Deadline::after(kPatienceForATwin));
  std::optional<net::PortInUse> first;
  while (const std::optional<net::PortInUse> in_use = try_to_serve(config, meeting)) {
    if (!first) {
      first = in_use;  // It may name who has ended since.
    }
    store = find_store_of_twin(store_options(config, meeting.assignment, meeting.secret),
                               meeting.assignment,
                               end,
                               keys,
                               *first);
    if (store != nullptr) {
      meeting.is_second_rank_0 = true;
      return;
    }
    interruptible_sleep_until(earlier(end, Deadline::after(kPause)));
  }
}

// Before anything is written there.
void check_job(const Assignment& assignment, const store::TcpStore& store) {
  if (are_different_jobs(assignment.job, store.job())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rendezvous: rank {} can't meet the others at {}: {}",
                            assignment.rank,
                            describe_place(assignment),
                            describe_jobs(assignment, store)));
  }
}

std::shared_ptr<store::TcpStore> connect(const Config& config,
                                         const Assignment& assignment,
                                         const std::string& secret,
                                         Deadline deadline) {
  const Logger logger(fmt::format("rank {}", assignment.rank), config.log_level);
  const auto start = Deadline::Clock::now();
  auto patience = leads_nowhere(assignment.master_addr) ? std::min(config.stall, kPatienceForAName)
                                                        : config.stall;
  for (;; patience = std::max(config.stall, patience * 2)) {
    const Deadline next = earlier(deadline, Deadline::at(start + patience));
    std::string reason;
    try {
      auto store =
          std::make_shared<store::TcpStore>(store_options(config, assignment, secret), next);
      check_job(assignment, *store);
      logger.debug("rendezvous: has reached the store at " + describe_place(assignment));
      return store;
    } catch (const Error& error) {
      if (is_refusal(error.code())) {
        throw not_let_in(assignment, error);
      }
      if (error.code() != ErrorCode::kTimeout) {
        throw;
      }
      reason = error.what();
    }
    const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
    const std::string message =
        fmt::format("rendezvous: rank {} has tried for {:.1f} s to reach the store at {}{}: {}{}",
                    assignment.rank,
                    spent.count(),
                    describe_place(assignment),
                    assignment.uses_agent_store ? "" : ", which rank 0 serves",
                    reason,
                    serves_store(assignment) ? describe_foreign_host(assignment.master_addr) : "");
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout, message);
    }
    logger.warning(message);
  }
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

std::string describe_place(const Assignment& assignment) {
  const auto& [host, port] = std::tie(assignment.master_addr, assignment.master_port);
  if (assignment.place_source.empty()) {
    return fmt::format("MASTER_ADDR={}, MASTER_PORT={}", host, port);
  }
  const char* const form = host.find(':') == std::string::npos ? "{}:{} ({})" : "[{}]:{} ({})";
  return fmt::format(fmt::runtime(form), host, port, assignment.place_source);
}

Error lost_store(const Assignment& assignment, const Error& reason) {
  const char* server = assignment.uses_agent_store ? "the launcher" : "rank 0";
  return {ErrorCode::kPeerLost,
          fmt::format("rendezvous: rank {} has lost the store at {}: {}, which serves it, has "
                      "ended; see what {} wrote ({})",
                      assignment.rank,
                      describe_place(assignment),
                      server,
                      server,
                      reason.what())};
}

Meeting meet(const Config& config,
             const Assignment& assignment,
             Deadline deadline,
             const MeetingKeys& keys) {
  Meeting meeting;
  meeting.assignment = assignment;
  if (assignment.is_on_one_node) {
    meeting.assignment.master_addr = kLoopback;
  }
  meeting.secret = find_secret(config, meeting.assignment);
  std::shared_ptr<store::TcpStore> store;
  if (serves_store(assignment)) {
    serve_or_join_twin(config, deadline, keys, meeting, store);
  }
  if (store == nullptr) {
    store = connect(config, meeting.assignment, meeting.secret, deadline);
  }
  meeting.store_fd = assignment.uses_agent_store ? store->fd() : -1;
  meeting.local_ip = store->local_address().ip();
  meeting.store = store;
  meeting.connect_again = [options = store_options(config, meeting.assignment, meeting.secret)](
                              std::chrono::milliseconds io_timeout) {
    store::TcpStoreOptions again = options;
    again.io_timeout = io_timeout;
    again.if_refused = net::IfRefused::kGiveUp;
    return std::make_shared<store::TcpStore>(again, Deadline::after(io_timeout));
  };
  return meeting;
}

void leave_after_failure(Meeting& meeting) {
  meeting.store.reset();
  if (meeting.host != nullptr) {
    meeting.host->wait_until_left(Deadline::after(kLingerTimeout));
  }
}

Meeting meet_in(const GivenStore& given, const Config& config, const Assignment& assignment) {
  Meeting meeting;
  meeting.assignment = assignment;
  meeting.secret = given.secret ? *given.secret : find_secret(config, kLoopback);
  meeting.store = given.store;
  meeting.store_fd = given.fd;
  meeting.connect_again = given.connect_again;
  if (meeting.connect_again == nullptr) {
    meeting.connect_again = [store = given.store](std::chrono::milliseconds) { return store; };
  }
  if (meeting.secret.empty()) {
    meeting.local_ip = kLoopback;
  } else if (given.local_ip.empty()) {
    meeting.local_ip =
        choose_own_address(config.interface, net::interfaces(), net::default_route_address()).ip();
  } else {
    meeting.local_ip = given.local_ip;
  }
  return meeting;
}

}  // namespace unisono::rendezvous
