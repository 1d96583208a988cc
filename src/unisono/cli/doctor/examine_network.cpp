#include "unisono/cli/doctor/examine_network.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/cli/doctor/system_files.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/interface_choice.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

// In Mbit/s; -1 or nothing where the driver knows none.
std::string describe_speed(std::optional<std::int64_t> speed) {
  constexpr double kGiga = 1000;
  if (!speed || *speed <= 0) {
    return "";
  }
  return fmt::format(", {:g} Gbit/s", static_cast<double>(*speed) / kGiga);
}

Finding describe(const net::Interface& interface, const fs::path& root) {
  std::string addresses;
  for (const net::Address& address : interface.addresses) {
    addresses += ", " + address.ip();
  }
  const fs::path folder = root / "sys/class/net" / interface.name;
  const auto mtu = read_number(folder / "mtu");
  return {.state = State::kInfo,
          .topic = "interface",
          .text = fmt::format("{}: {}{}{}{}{}",
                              interface.name,
                              interface.is_up ? "up" : "down",
                              interface.is_loopback ? ", loopback" : "",
                              addresses.empty() ? ", no address" : addresses,
                              mtu ? fmt::format(", MTU {}", *mtu) : "",
                              describe_speed(read_number(folder / "speed")))};
}

Findings examine_ports(const Config& config, const Place& place) {
  if (!config.ports) {
    return {};
  }
  const int n_ports = config.ports->last - config.ports->first + 1;
  const std::string text =
      fmt::format("UNISONO_PORTS={}-{}", config.ports->first, config.ports->last);
  if (n_ports < place.local_world_size) {
    return {
        {.state = State::kProblem,
         .topic = "data",
         .text = fmt::format("{} has {} port{}, and this node {} ranks, each of which needs one",
                             text,
                             n_ports,
                             n_ports == 1 ? "" : "s",
                             place.local_world_size),
         .advice = "widen the range"}};
  }
  return {{.state = State::kInfo,
           .topic = "data",
           .text = text + ": ranks take connections of other nodes there"}};
}

}  // namespace

Findings examine_interfaces(const std::vector<net::Interface>& interfaces, const fs::path& root) {
  Findings findings;
  bool has_loopback = false;
  for (const net::Interface& interface : interfaces) {
    has_loopback = has_loopback || (interface.is_loopback && interface.is_up);
    findings.push_back(describe(interface, root));
  }
  if (!has_loopback) {
    findings.push_back({.state = State::kProblem,
                        .topic = "interface",
                        .text = "loopback is down: ranks of this node can't meet",
                        .advice = "ip link set lo up, as root"});
  }
  return findings;
}

std::optional<net::Address> find_source(const net::Address& to) {
  const Fd fd(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || ::connect(fd.get(), to.data(), to.size()) != 0) {
    return std::nullopt;
  }
  return net::local_address(fd.get());
}

Route find_route(const Place& place) {
  // For documents (RFC 5737): no network has it, so it is beyond the default route.
  const char* const anywhere = "198.51.100.1";
  constexpr std::uint16_t kAnyPort = 9;
  Route route;
  std::string host = anywhere;
  if (place.launch_info && !place.launch_info->master_addr.empty()) {
    host = rendezvous::meeting_host(*place.launch_info);
    route.to = host;
  }
  try {
    for (const net::Address& address : net::resolve(host, kAnyPort)) {
      if (const auto source = find_source(address)) {
        route.source = source;
        break;
      }
    }
  } catch (const Error&) {
    route.source.reset();  // A name that nobody knows is another examination's matter.
  }
  return route;
}

Findings examine_data_path(const Config& config,
                           const Place& place,
                           const Route& route,
                           const std::vector<net::Interface>& interfaces) {
  Findings findings;
  const net::Address by_store = route.source.value_or(net::Address::any(AF_INET, 0));
  try {
    const rendezvous::DataInterface chosen =
        rendezvous::choose_data_interface(config.interface, interfaces, by_store);
    const std::string name =
        fmt::format("{} ({})",
                    chosen.name.empty() ? "an address of no interface" : chosen.name,
                    chosen.address.ip());
    if (!config.interface.empty()) {
      findings.push_back(
          {.state = State::kOk,
           .topic = "data",
           .text = fmt::format(
               "other nodes reach this one at {}: UNISONO_INTERFACE={}", name, config.interface)});
    } else if (!route.source) {
      findings.push_back({.state = State::kInfo,
                          .topic = "data",
                          .text = route.to.empty() ? "no route to other machines"
                                                   : fmt::format("no route to {}", route.to)});
    } else {
      findings.push_back(
          {.state = State::kOk,
           .topic = "data",
           .text = fmt::format(
               "other nodes reach this one at {}: {}; UNISONO_INTERFACE chooses "
               "another",
               name,
               route.to.empty() ? "the way to other machines"
                                : fmt::format("the way to {}, where the ranks meet", route.to))});
    }
  } catch (const Error& error) {
    findings.push_back({.state = State::kProblem,
                        .topic = "data",
                        .text = error.what(),
                        .advice = "name one of these, or a network like 10.0.0.0/8"});
  }
  append(findings, examine_ports(config, place));
  return findings;
}

}  // namespace unisono::cli::doctor
