#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/examine_launcher.h"
#include "unisono/cli/doctor/finding.h"
#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"

namespace unisono::cli::doctor {

/// Whether a server could listen at a port, on all addresses of this machine.
struct PortState {
  bool is_free = true;
  std::string holder = {};  ///< As net::find_port_holder() has it.
  std::string reason = {};  ///< Of the system, why it is not free.
};

[[nodiscard]] PortState look_at_port(std::uint16_t port);

/// What the examination of a meeting place asks the machine.
struct MeetingSources {
  std::function<std::vector<net::Address>(const std::string& host)> resolve;
  std::function<PortState(std::uint16_t port)> look_at_port;
  std::vector<net::Interface> interfaces;
};

/// Whether the ranks can meet where the environment says: name, address, port.
[[nodiscard]] Findings examine_meeting(const Environment& environment,
                                       const Place& place,
                                       const MeetingSources& sources);

/// Where the job's secret comes from. Shows nothing of it.
[[nodiscard]] Finding examine_secret(const Config& config, const Place& place);

}  // namespace unisono::cli::doctor
