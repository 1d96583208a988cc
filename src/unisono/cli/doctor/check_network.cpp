#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <limits>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/cli/doctor/checks.h"
#include "unisono/net/host.h"
#include "unisono/net/ports.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/this_node.h"

namespace unisono::cli::doctor {
namespace {

using Addresses = std::vector<net::Address>;

// Returns "10.0.0.1, fd00::1", each address once.
std::string list(const Addresses& addresses) {
  std::vector<std::string> ips;
  for (const net::Address& address : addresses) {
    if (std::ranges::find(ips, address.ip()) == ips.end()) {
      ips.push_back(address.ip());
    }
  }
  return join(ips, ", ");
}

bool has_own_address(const Machine& machine, const Addresses& addresses) {
  return std::ranges::any_of(addresses, [&](const net::Address& address) {
    return net::is_own_address(machine.interfaces, address);
  });
}

// Returns true unless the store is certainly served elsewhere.
bool may_serve_store(const Machine& machine, const rendezvous::LaunchInfo& launch_info) {
  if (launch_info.uses_agent_store || launch_info.rank > 0) {
    return false;
  }
  try {
    return launch_info.rank == 0 || launch_info.master_addr.empty() ||
           has_own_address(machine, machine.resolve(launch_info.master_addr));
  } catch (const Error&) {
    return true;
  }
}

// Checks a meeting place on loopback, which is a different machine on each node.
Findings check_loopback(const Machine& machine,
                        const std::string& name,
                        const Addresses& loopbacks) {
  const rendezvous::LaunchInfo& launch_info = machine.place.launch_info;
  const std::string host = machine.place.meeting_host();
  const auto local_size = parse_whole(machine.environment("LOCAL_WORLD_SIZE").value_or(""));
  if (local_size && *local_size < launch_info.world_size && !launch_info.is_on_one_node &&
      (host == "localhost" || host == loopbacks.front().ip())) {
    return problem(name + " leads every node to itself, and of " +
                       std::to_string(launch_info.world_size) + " ranks only " +
                       std::to_string(*local_size) + " are on this one",
                   "set MASTER_ADDR on every node to an address of rank 0's node");
  }
  if (std::ranges::any_of(loopbacks, [&](const net::Address& address) {
        return net::has_loopback(machine.interfaces, address);
      })) {
    return {};
  }
  const net::Address own = net::loopback_of(machine.interfaces);
  return problem(
      name + " (" + list(loopbacks) + ") is loopback, and no interface of this machine has it: " +
          net::describe(machine.interfaces),
      net::has_loopback(machine.interfaces, own)
          ? "set MASTER_ADDR=" + own.ip() + " on every rank"
          : "ip link set lo up, as root, or set MASTER_ADDR to an address of rank 0's node");
}

// Formats a speed in Mbit/s; the driver reports -1 or no value if the speed is unknown.
std::string describe_speed(std::optional<std::int64_t> speed) {
  constexpr double kMegaPerGiga = 1000;
  return speed && *speed > 0
             ? fmt::format(", {:g} Gbit/s", static_cast<double>(*speed) / kMegaPerGiga)
             : "";
}

Findings check_data_ports(const Machine& machine) {
  const std::optional<PortRange>& ports = machine.config.ports;
  if (!ports) {
    return {};
  }
  const int n_ports = ports->last - ports->first + 1;
  const int n_ranks = machine.place.local_world_size;
  const std::string text = fmt::format("UNISONO_PORTS={}-{}", ports->first, ports->last);
  return n_ports >= n_ranks
             ? info(text + ": ranks accept connections of other nodes there")
             : problem(text + " has " + count_of(n_ports, "port") + ", and this node " +
                           std::to_string(n_ranks) + " ranks, each of which needs one",
                       "widen the range");
}

}  // namespace

PortState probe_port(std::uint16_t port) {
  try {
    // One after the other: two reservations of the same port exclude each other.
    (void)net::PortReservation(net::Address::any(AF_INET, port));
    (void)net::PortReservation(net::any_of_both_families(port));
    return {};
  } catch (const Error& error) {
    return {.is_free = false, .holder = net::find_port_holder(port), .reason = error.what()};
  }
}

std::optional<net::Address> find_source(const std::string& host) {
  constexpr std::uint16_t kAnyPort = 9;
  try {
    for (const net::Address& to : net::resolve(host, kAnyPort)) {
      const Fd fd(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (fd.is_open() && ::connect(fd.get(), to.data(), to.size()) == 0) {
        return net::local_address(fd.get());
      }
    }
  } catch (const Error&) {
    return std::nullopt;  // check_meeting_place() reports a name without address.
  }
  return std::nullopt;
}

Findings check_meeting_place(const Machine& machine) {
  const std::string host = machine.place.meeting_host();
  if (host.empty()) {
    return {};  // Rank 0 chooses an address itself.
  }
  const std::string name =
      (machine.environment("MASTER_ADDR") ? "MASTER_ADDR=" : "the meeting place ") + host;
  Addresses addresses;
  try {
    addresses = machine.resolve(host);
  } catch (const Error& error) {
    return problem(name + ": " + error.what(),
                   "set MASTER_ADDR to an address, or to a name that every node can look up");
  }
  if (std::ranges::all_of(addresses, &net::Address::is_loopback)) {
    if (Findings findings = check_loopback(machine, name, addresses); !findings.empty()) {
      return findings;
    }
  }
  if (rendezvous::serves_store(machine.place.launch_info) && !has_own_address(machine, addresses)) {
    return warning(
        name + " (" + list(addresses) +
            ") is not an address of this machine, and rank 0, which serves the store, is "
            "here",
        "set MASTER_ADDR to an address of rank 0's node, unless it is one that is "
        "translated to this machine's");
  }
  return ok(name + " is " + list(addresses));
}

// Checks the port of the store, for the job of this process or for a later job that is started from
// here.
Findings check_port(const Machine& machine) {
  const JobPlace& place = machine.place;
  const std::optional<std::string> value = machine.environment("MASTER_PORT");
  std::int64_t port = value ? parse_whole(*value).value_or(-1) : rendezvous::kDefaultMasterPort;
  if (place.is_in_job) {
    port = place.launch_info.master_port;
    if (port == 0 || (place.launch_info.master_addr.empty() && place.error.empty()) ||
        !may_serve_store(machine, place.launch_info)) {
      return {};
    }
  }
  if (port < 1 || port > std::numeric_limits<std::uint16_t>::max()) {
    return problem("MASTER_PORT=\"" + value.value_or("") + "\" is not a port",
                   "set it to a number from 1 to 65535, or unset it");
  }
  const PortState state = machine.probe_port(static_cast<std::uint16_t>(port));
  const std::string holder =
      state.holder.empty() ? "not available (" + state.reason + ")" : "held by " + state.holder;
  if (!place.is_in_job && !value) {
    const std::string text = std::to_string(port) + ", where ranks without MASTER_PORT meet, is ";
    return state.is_free ? ok(text + "free")
                         : warning(text + holder,
                                   "set MASTER_PORT for ranks that are started by hand; unisono "
                                   "run takes a free port by itself");
  }
  const std::string name = "MASTER_PORT " + std::to_string(port);
  if (state.is_free) {
    return ok(name + ", where rank 0 serves the store, is free");
  }
  if (place.launch_info.rank != 0) {
    return warning(name + " is " + holder,
                   "unless that is rank 0 of this job, which serves the store there, set "
                   "MASTER_PORT to a free port on every rank");
  }
  return problem(name + " is " + holder,
                 state.holder.empty()
                     ? "set MASTER_PORT to a free port above 1023 on every rank"
                     : "end that process, or set MASTER_PORT to a free port on every rank");
}

Findings check_host(const Machine& machine) {
  const std::string name = rendezvous::host_name();
  try {
    return info(name + " is " + list(machine.resolve(name)));
  } catch (const Error&) {
    return info(name + "; the name has no known address here");
  }
}

// Checks the interface and the ports on which other nodes reach the ranks of this node.
Findings check_data(const Machine& machine) {
  const std::string& wanted = machine.config.interface;
  const std::string to = machine.place.meeting_host();
  Findings findings;
  try {
    const rendezvous::DataInterface chosen = rendezvous::choose_data_interface(
        wanted, machine.interfaces, machine.route_source.value_or(net::Address::any(AF_INET, 0)));
    const std::string text =
        fmt::format("other nodes reach this one at {} ({}): ",
                    chosen.name.empty() ? "not the address of an interface" : chosen.name,
                    chosen.address.ip());
    if (!wanted.empty()) {
      findings = ok(text + "UNISONO_INTERFACE=" + wanted);
    } else if (machine.route_source) {
      findings = ok(text + "the way to " +
                    (to.empty() ? "other machines" : to + ", where the ranks meet") +
                    "; UNISONO_INTERFACE chooses another");
    } else {
      findings = info("no route to " + (to.empty() ? "other machines" : to));
    }
  } catch (const Error& error) {
    findings = problem(error.what(), "name one of these, or a network like 10.0.0.0/8");
  }
  append(findings, check_data_ports(machine));
  return findings;
}

Findings check_interfaces(const Machine& machine) {
  Findings findings;
  bool has_loopback = false;
  for (const net::Interface& interface : machine.interfaces) {
    const std::filesystem::path folder = "sys/class/net/" + interface.name;
    const auto mtu = machine.number(folder / "mtu");
    has_loopback = has_loopback || (interface.is_loopback && interface.is_up);
    append(findings,
           info(interface.name + (interface.is_up ? ": up" : ": down") +
                (interface.is_loopback ? ", loopback, " : ", ") +
                (interface.addresses.empty() ? "no address" : list(interface.addresses)) +
                (mtu ? ", MTU " + std::to_string(*mtu) : "") +
                describe_speed(machine.number(folder / "speed"))));
  }
  if (!has_loopback) {
    append(
        findings,
        problem("loopback is down: ranks of this node can't meet", "ip link set lo up, as root"));
  }
  return findings;
}

}  // namespace unisono::cli::doctor
