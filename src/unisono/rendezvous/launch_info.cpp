#include "unisono/rendezvous/launch_info.h"

#include <fmt/format.h>

#include <string>

#include "unisono/net/host_port.h"
#include "unisono/net/loopback.h"

namespace unisono::rendezvous {

const char* to_string(KeyValueSpaceKind kind) noexcept {
  switch (kind) {
    case KeyValueSpaceKind::kPmi:
      return "PMI";
    case KeyValueSpaceKind::kPmix:
      return "PMIx";
    case KeyValueSpaceKind::kNone:
      break;
  }
  return "none";
}

std::string meeting_host(const LaunchInfo& launch_info) {
  return launch_info.is_on_one_node ? net::loopback_host() : launch_info.master_addr;
}

bool serves_store(const LaunchInfo& launch_info) {
  return launch_info.rank == 0 && !launch_info.uses_agent_store;
}

std::string describe_place(const LaunchInfo& launch_info) {
  if (launch_info.place_source.empty()) {
    return fmt::format(
        "MASTER_ADDR={}, MASTER_PORT={}", launch_info.master_addr, launch_info.master_port);
  }
  return fmt::format("{} ({})",
                     net::join_host_port(launch_info.master_addr, launch_info.master_port),
                     launch_info.place_source);
}

}  // namespace unisono::rendezvous
