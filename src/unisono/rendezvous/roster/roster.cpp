#include "unisono/rendezvous/roster/roster.h"

#include <fmt/format.h>

#include <string>

namespace unisono::rendezvous {

std::string describe(const Member& member) {
  return fmt::format("rank {} (pid {} on {})", member.rank, member.pid, member.host);
}

}  // namespace unisono::rendezvous
