#include "unisono/engine/native/rank_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/rendezvous/roster.h"

namespace unisono::engine {
namespace {

// What the process is doing, as the kernel says; for a process of this machine.
std::string process_state(std::int64_t pid) {
  const std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  // The command, in parentheses, may itself hold any character.
  const std::size_t end_of_command = stat.rfind(')');
  if (end_of_command == std::string::npos || end_of_command + 2 >= stat.size()) {
    return "gone";
  }
  switch (stat[end_of_command + 2]) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "waiting for the system";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "gone";
    default:
      return "in an unknown state";
  }
}

}  // namespace

RankStatus::RankStatus(const rendezvous::Roster& roster, std::string prefix, Logger logger)
    : roster_(roster), prefix_(std::move(prefix)), logger_(std::move(logger)) {}

std::string RankStatus::describe(int rank) const {
  return rendezvous::describe(roster_.members[static_cast<std::size_t>(rank)]);
}

std::string RankStatus::describe_late(std::span<const int> ranks) const {
  std::string text;
  for (const int rank : ranks) {
    const rendezvous::Member& member = roster_.members[static_cast<std::size_t>(rank)];
    const bool is_on_node = member.node == roster_.self().node;
    const std::string state = is_on_node ? ", " + process_state(member.pid) : "";
    text += fmt::format("{}rank {} (pid {} on {}{})",
                        text.empty() ? "" : " and ",
                        member.rank,
                        member.pid,
                        member.host,
                        state);
  }
  return text;
}

void RankStatus::note_departure(int rank) {
  const MutexLock lock(mutex_);
  departed_.insert(rank);
}

std::optional<int> RankStatus::find_departed(std::span<const int> ranks) const {
  const MutexLock lock(mutex_);
  const auto found =
      std::find_if(ranks.begin(), ranks.end(), [this](int rank) UNISONO_REQUIRES(mutex_) {
        return departed_.contains(rank);
      });
  return found == ranks.end() ? std::nullopt : std::optional<int>(*found);
}

}  // namespace unisono::engine
