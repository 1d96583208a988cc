#include "unisono/rendezvous/assignment.h"

#include <fmt/format.h>

#include <string>

#include "unisono/net/host_port.h"
#include "unisono/net/loopback.h"

namespace unisono::rendezvous {

std::string meeting_host(const Assignment& assignment) {
  return assignment.is_on_one_node ? net::loopback_host() : assignment.master_addr;
}

bool serves_store(const Assignment& assignment) {
  return assignment.rank == 0 && !assignment.uses_agent_store;
}

std::string describe_place(const Assignment& assignment) {
  if (assignment.place_source.empty()) {
    return fmt::format(
        "MASTER_ADDR={}, MASTER_PORT={}", assignment.master_addr, assignment.master_port);
  }
  return fmt::format("{} ({})",
                     net::join_host_port(assignment.master_addr, assignment.master_port),
                     assignment.place_source);
}

}  // namespace unisono::rendezvous
