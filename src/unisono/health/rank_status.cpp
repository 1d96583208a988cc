#include "unisono/health/rank_status.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/process_state.h"
#include "unisono/health/group_health.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {
namespace {

// What JobRanks is made of.
std::vector<int> job_ranks_of(const rendezvous::Roster& roster) {
  std::vector<int> ranks;
  bool is_all = true;
  for (const rendezvous::Member& member : roster.members) {
    is_all = is_all && member.rank == static_cast<int>(ranks.size());
    ranks.push_back(member.rank);
  }
  return is_all ? std::vector<int>() : ranks;
}

}  // namespace

RankStatus::RankStatus(const rendezvous::Roster& roster,
                       std::string prefix,
                       Logger logger,
                       GroupHealth* health)
    : roster_(roster),
      job_ranks_(job_ranks_of(roster)),
      prefix_(std::move(prefix)),
      logger_(std::move(logger)),
      health_(health) {}

std::string RankStatus::describe(int rank) const {
  return rendezvous::describe(roster_.members[static_cast<std::size_t>(rank)]);
}

bool RankStatus::is_on_node(int rank) const {
  return roster_.members[static_cast<std::size_t>(rank)].node == roster_.self().node;
}

bool RankStatus::is_stopped(int rank) const {
  const std::int64_t pid = roster_.members[static_cast<std::size_t>(rank)].pid;
  return is_on_node(rank) && describe_process_state(static_cast<pid_t>(pid)) == kStoppedProcess;
}

std::string RankStatus::describe_late(std::span<const int> ranks,
                                      const std::map<int, std::string>& answers) const {
  std::string text;
  bool ends_a_clause = false;
  for (const int rank : ranks) {
    const rendezvous::Member& member = roster_.members[static_cast<std::size_t>(rank)];
    const std::string state =
        is_on_node(rank)
            ? fmt::format(", {}", describe_process_state(static_cast<pid_t>(member.pid)))
            : "";
    const char* const separator = ends_a_clause ? ", and " : " and ";
    text += fmt::format("{}rank {} (pid {} on {}{})",
                        text.empty() ? "" : separator,
                        member.rank,
                        member.pid,
                        member.host,
                        state);
    const auto found = answers.find(rank);
    const std::string answer = found == answers.end() ? "" : found->second;
    std::string clause;
    if (!is_on_node(rank)) {
      clause = answer;
    } else if (health_ != nullptr) {
      transport::RankProgress rank_progress = health_->progress_of(rank);
      rank_progress.elsewhere = answer;
      clause = transport::describe(rank_progress, job_ranks_);
    }
    ends_a_clause = !clause.empty();
    text += ends_a_clause ? ", which " + clause : "";
  }
  return text;
}

std::string RankStatus::describe_departed(int rank) const {
  const std::string text =
      fmt::format("{} left the group, but this operation still needs it", describe(rank));
  const bool can_look = health_ != nullptr && is_on_node(rank);
  const std::string refused = can_look ? health_->progress_of(rank).refused : "";
  return refused.empty()
             ? text
             : fmt::format("{}; it had refused a call for wrong arguments: \"{}\"", text, refused);
}

void RankStatus::report_unheard(const Error& failure) const noexcept {
  try {
    const std::string text =
        fmt::format("{} leaves a group that has failed: {}", prefix_, failure.what());
    if (health_ == nullptr || health_->is_news(failure)) {
      logger_.warning(text);
    } else {
      logger_.debug(text);
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say.
  }
}

void RankStatus::note_departure(int rank, const transport::Departure& departure) {
  const MutexLock lock(mutex_);
  if (departure.from_operations) {
    departed_.insert(rank);
  }
  if (departure.from_messages) {
    departed_from_messages_.insert(rank);
  }
}

// The rank's own memory has that.
bool RankStatus::has_left_here(int rank) const {
  return health_ != nullptr && is_on_node(rank) && health_->has_left(rank);
}

bool RankStatus::has_departed_from_messages(int rank) const {
  if (has_left_here(rank)) {
    return true;
  }
  const MutexLock lock(mutex_);
  return departed_from_messages_.contains(rank);
}

std::optional<int> RankStatus::find_departed(std::span<const int> ranks) const {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [this](int rank) {
    if (has_left_here(rank)) {
      return true;
    }
    const MutexLock lock(mutex_);
    return departed_.contains(rank);
  });
  return found == ranks.end() ? std::nullopt : std::optional<int>(*found);
}

}  // namespace unisono::health
