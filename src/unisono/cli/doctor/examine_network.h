#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/examine_launcher.h"
#include "unisono/cli/doctor/finding.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"

namespace unisono::cli::doctor {

/// A row for each interface, with its MTU and speed as /sys has them, and whether loopback works.
[[nodiscard]] Findings examine_interfaces(const std::vector<net::Interface>& interfaces,
                                          const std::filesystem::path& root);

/// The address from which this machine would send to another; nothing if it has no way there. Sends
/// nothing.
[[nodiscard]] std::optional<net::Address> find_source(const net::Address& to);

/// How this machine reaches the place where the ranks meet, or others if there is none yet.
struct Route {
  std::string to;  ///< The host where the ranks meet, or empty.
  std::optional<net::Address> source;
};

[[nodiscard]] Route find_route(const Place& place);

/// Through which interface, and at which ports, other nodes are to reach this one's ranks.
[[nodiscard]] Findings examine_data_path(const Config& config,
                                         const Place& place,
                                         const Route& route,
                                         const std::vector<net::Interface>& interfaces);

}  // namespace unisono::cli::doctor
