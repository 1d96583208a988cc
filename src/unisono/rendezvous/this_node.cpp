#include "unisono/rendezvous/this_node.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <random>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::rendezvous {
namespace {

// Two machines never share a boot id, so boot id and inode number together identify a namespace.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.empty() ? host_name() : id;
}

ino_t namespace_of(const char* path) {
  struct stat status{};
  return ::stat(path, &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::string node_id(const base::Config& config) {
  if (!config.node_id.empty()) {
    return config.node_id;
  }
  return fmt::format("{}/net{}/pid{}/uid{}",
                     boot_id(),
                     namespace_of("/proc/self/ns/net"),
                     namespace_of("/proc/self/ns/pid"),
                     ::getuid());
}

std::uint64_t random_number() {
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

std::string host_name() {
  constexpr std::size_t kMaxBytes = 256;
  std::array<char, kMaxBytes> name{};
  const bool is_known = ::gethostname(name.data(), name.size() - 1) == 0;
  return is_known && name[0] != '\0' ? name.data() : "unknown host";
}

namespace {

Error refusal(const std::string& wanted,
              const std::string& problem,
              const std::vector<net::Interface>& all) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("UNISONO_INTERFACE={}: {}; there are {}", wanted, problem, describe(all))};
}

// Returns true if the address has the same meaning on other machines.
bool is_global(const net::Address& address) {
  const in6_addr ip = address.ipv6();
  return !IN6_IS_ADDR_LINKLOCAL(&ip);
}

bool has_global(const net::Interface& interface) {
  return std::any_of(interface.addresses.begin(), interface.addresses.end(), is_global);
}

// Returns the wanted interface with the wanted addresses. If several interfaces are in a network,
// returns the best match.
net::Interface find_wanted(const std::string& wanted, const std::vector<net::Interface>& all) {
  const std::optional<net::Network> network = net::Network::parse(wanted);
  std::optional<net::Interface> best;
  const auto rank = [](const net::Interface& interface) {
    return (interface.is_up ? 2 : 0) + (has_global(interface) ? 1 : 0);
  };
  for (net::Interface interface : all) {
    if (network) {
      std::erase_if(interface.addresses,
                    [&](const net::Address& address) { return !network->contains(address); });
    }
    const bool is_wanted = network ? !interface.addresses.empty() : interface.name == wanted;
    if (is_wanted && (!best || rank(interface) > rank(*best))) {
      best = std::move(interface);
    }
  }
  if (!best) {
    throw refusal(
        wanted, network ? "no interface has an address in it" : "there is no such interface", all);
  }
  if (!best->is_up) {
    throw refusal(wanted, fmt::format("{} is down", best->name), all);
  }
  return *best;
}

}  // namespace

DataInterface choose_data_interface(const std::string& wanted,
                                    const std::vector<net::Interface>& all,
                                    const net::Address& by_store) {
  if (wanted.empty()) {
    for (const net::Interface& interface : all) {
      for (const net::Address& address : interface.addresses) {
        if (address.ip() == by_store.ip()) {
          return {.name = interface.name, .address = address};
        }
      }
    }
    return {.name = "", .address = by_store};
  }
  const net::Interface interface = find_wanted(wanted, all);
  std::optional<net::Address> chosen;
  for (const net::Address& address : interface.addresses) {
    const bool is_better =
        !chosen || (chosen->family() != by_store.family() && address.family() == by_store.family());
    if (is_global(address) && is_better) {
      chosen = address;
    }
  }
  if (!chosen) {
    throw refusal(
        wanted, fmt::format("{} has no address that others can use", interface.name), all);
  }
  return {.name = interface.name, .address = *chosen};
}

net::Address choose_own_address(const std::string& wanted,
                                const std::vector<net::Interface>& all,
                                const std::optional<net::Address>& by_default_route) {
  const net::Address loopback = net::loopback_of(all);
  if (!wanted.empty()) {
    return choose_data_interface(wanted, all, by_default_route.value_or(loopback)).address;
  }
  if (by_default_route) {
    return *by_default_route;
  }
  for (const net::Interface& interface : all) {
    for (const net::Address& address : interface.addresses) {
      if (interface.is_up && !interface.is_loopback && is_global(address)) {
        return address;
      }
    }
  }
  return loopback;
}

std::vector<net::Interface> choose_group_interfaces(const std::string& wanted,
                                                    const std::vector<net::Interface>& all,
                                                    int family,
                                                    bool stays_here) {
  if (!wanted.empty() && !stays_here) {
    return {find_wanted(wanted, all)};
  }
  std::vector<net::Interface> loopbacks;
  std::vector<net::Interface> others;
  for (const net::Interface& interface : all) {
    const bool is_usable = interface.is_up && std::any_of(interface.addresses.begin(),
                                                          interface.addresses.end(),
                                                          [&](const net::Address& address) {
                                                            return address.family() == family;
                                                          });
    if (is_usable) {
      (interface.is_loopback ? loopbacks : others).push_back(interface);
    }
  }
  return stays_here || others.empty() ? loopbacks : others;
}

net::PortReservation reserve_store_port(const base::Config& config, int family) {
  const net::Address any = net::Address::any(family, 0);
  return config.ports ? net::PortReservation(any, *config.ports) : net::PortReservation(any);
}

}  // namespace unisono::rendezvous
