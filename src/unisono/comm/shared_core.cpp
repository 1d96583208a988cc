#include "unisono/comm/shared_core.h"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "unisono/base/cores.h"
#include "unisono/base/log.h"
#include "unisono/health/group_contacts.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::comm {
namespace {

std::string describe_ranks(const std::vector<int>& ranks) {
  if (ranks.size() == 2) {
    return fmt::format("ranks {} and {}", ranks[0], ranks[1]);
  }
  return fmt::format("{} ranks, {} and {} among them,", ranks.size(), ranks[0], ranks[1]);
}

}  // namespace

std::string describe_shared_core(const rendezvous::Roster& roster,
                                 const std::function<std::vector<int>(pid_t)>& cores_of) {
  std::map<int, std::vector<int>> ranks_of_core;
  std::set<std::int64_t> processes;
  for (const rendezvous::Member& member : roster.members) {
    // Ranks that are threads of a process are that on purpose.
    if (member.node != roster.self().node || !processes.insert(member.pid).second) {
      continue;
    }
    const std::vector<int> cores = cores_of(static_cast<pid_t>(member.pid));
    if (cores.size() == 1) {
      ranks_of_core[cores.front()].push_back(member.rank);
    }
  }
  std::string text;
  for (const auto& [core, ranks] : ranks_of_core) {
    if (ranks.size() > 1) {
      text += fmt::format(
          "{}{} may use core {} only", text.empty() ? "" : "; ", describe_ranks(ranks), core);
    }
  }
  return text;
}

void warn_of_shared_core(const rendezvous::Roster& roster, const Logger& logger) {
  if (health::topology_of(roster).local_rank() != 0 || ::sysconf(_SC_NPROCESSORS_ONLN) < 2) {
    return;
  }
  const std::string ranks = describe_shared_core(roster, unisono::cores_of);
  if (!ranks.empty()) {
    logger.warning(
        fmt::format("on {} {}, and take turns there: start them with cores of their own, or bound "
                    "to nothing (mpirun --bind-to none, srun --cpu-bind=none)",
                    roster.self().host,
                    ranks));
  }
}

}  // namespace unisono::comm
