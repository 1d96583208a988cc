#include "unisono/engine/native/point_to_point/message_operation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/collective/topology.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/wait_monitor.h"

namespace unisono::engine {
namespace {

// Of a long list the first ones are shown.
constexpr std::size_t kMostRequests = 3;
constexpr std::size_t kMostTags = 8;
constexpr std::size_t kMostRanks = 16;

// "recv (...), send (...) and 4 more".
std::string list(std::span<const std::string> requests) {
  const auto shown = requests.first(std::min(requests.size(), kMostRequests));
  const std::size_t n_more = requests.size() - shown.size();
  return fmt::format(
      "{}{}", fmt::join(shown, ", "), n_more == 0 ? "" : fmt::format(" and {} more", n_more));
}

}  // namespace

transport::WaitMonitor& MessageOperation::wait_monitor() {
  if (!wait_monitor_) {
    wait_monitor_.emplace(TimeLimit(timeout_),
                          waiting_.parts.stall,
                          waiting_.parts.failure,
                          static_cast<const transport::WaitObserver&>(*this));
  }
  return *wait_monitor_;
}

Deadline MessageOperation::next_check() {
  return is_overdue_ ? Deadline::never() : wait_monitor().next_check();
}

void MessageOperation::check() {
  if (is_overdue_) {
    return;
  }
  bool is_first = true;
  if (std::exchange(n_seen_bytes_, n_moved_bytes) != n_moved_bytes) {
    wait_monitor().note_progress();
  }
  try {
    wait_monitor().check([&] {
      if (!is_first) {
        waiting_.look_again();
      }
      is_first = false;
      return has_ended ? std::vector<int>{} : std::vector<int>{peer};
    });
  } catch (const Error& problem) {
    if (is_overdue_) {
      return;
    }
    if (waiting_.parts.failure.is_set()) {
      throw;
    }
    throw Error(
        problem.code(),
        fmt::format("{}: {}", describe(*this, waiting_.parts.ranks.job_ranks()), problem.what()));
  }
}

std::string MessageOperation::describe_late() const {
  return peer == kAnyRank ? "a message from any rank"
                          : waiting_.parts.ranks.describe_late(std::span(&peer, 1));
}

std::string MessageOperation::describe_unexpected() const {
  const std::vector<int> tags =
      is_send ? std::vector<int>() : waiting_.matcher.find_unexpected_tags(peer);
  if (tags.empty()) {
    return "";
  }
  const auto shown = std::span(tags).first(std::min(tags.size(), kMostTags));
  return fmt::format("; {} messages with tag {}{}, which nobody receives",
                     peer == kAnyRank ? "there are" : "it has sent",
                     fmt::join(shown, ", "),
                     shown.size() < tags.size() ? ", ..." : "");
}

Error MessageOperation::timed_out(std::span<const int> /*late_ranks*/) const {
  is_overdue_ = true;
  return {ErrorCode::kTimeout, "its time is up"};
}

void MessageOperation::expire(const std::string& late) const {
  throw Error(ErrorCode::kTimeout,
              fmt::format("{}: timed out waiting for {}{}",
                          describe(*this, waiting_.parts.ranks.job_ranks()),
                          late.empty() ? describe_late() : late,
                          describe_unexpected()));
}

bool MessageOperation::has_departed(int rank) const {
  return waiting_.matcher.has_left(rank) ||
         (waiting_.parts.ranks.has_departed_from_messages(rank) &&
          // A rank of this node may have sent its last message since this one looked.
          !waiting_.matcher.has_unread(rank));
}

std::optional<Error> MessageOperation::departed(std::span<const int> /*late_ranks*/) const {
  if (peer != kAnyRank) {
    if (!has_departed(peer)) {
      return std::nullopt;
    }
    return Error(ErrorCode::kPeerLost, waiting_.parts.ranks.describe_departed(peer));
  }
  const collective::Topology& topology = waiting_.parts.transports.topology;
  if (topology.world_size() == 1) {
    return std::nullopt;  // It may send to itself.
  }
  std::vector<std::string> others;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    if (rank != topology.rank()) {
      if (!has_departed(rank)) {
        return std::nullopt;
      }
      others.push_back(waiting_.parts.ranks.describe(rank));
    }
  }
  const auto shown = std::span(others).first(std::min(others.size(), kMostRanks));
  return Error(ErrorCode::kPeerLost,
               fmt::format("all other ranks left the group: {}{}",
                           fmt::join(shown, ", "),
                           shown.size() < others.size() ? ", ..." : ""));
}

// Who has a connection with the rank that is waited for hears of its end; a rank that waits for
// anybody may have none with those that ended.
void MessageOperation::look_into(std::span<const int> /*late_ranks*/) const {
  has_waited_long_ = true;
  const collective::Topology& topology = waiting_.parts.transports.topology;
  if (peer != kAnyRank || topology.world_size() == 1) {
    return;
  }
  std::vector<int> gone;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    const bool is_other = rank != topology.rank() && !has_departed(rank);
    if (is_other && !waiting_.matcher.is_unreachable(rank)) {
      were_all_gone_ = false;
      return;
    }
    if (is_other) {
      gone.push_back(rank);
    }
  }
  if (std::exchange(were_all_gone_, true)) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("no rank is left that could send: nobody listens any more for {}",
                            waiting_.parts.ranks.describe_late(gone)));
  }
}

void MessageOperation::show(Deadline::Clock::time_point since,
                            std::span<const int> late_ranks) const {
  const std::span<const int> late = peer == kAnyRank ? std::span<const int>() : late_ranks;
  waiting_.parts.health.show_wait(id,
                                  {.since = since,
                                   .seen = {},
                                   .operation = describe(*this, waiting_.parts.ranks.job_ranks()),
                                   .late = {late.begin(), late.end()}});
}

void MessageOperation::stalled(std::chrono::milliseconds waited,
                               std::span<const int> /*late_ranks*/) const {
  const bool is_from_any = peer == kAnyRank;
  waiting_.parts.status.report_stall(describe(*this, waiting_.parts.ranks.job_ranks()),
                                     waited,
                                     describe_late() + describe_unexpected(),
                                     std::span(&peer, is_from_any ? 0 : 1));
  if (is_unanswered_receive()) {
    waiting_.parts.health.look_for_cycle(id);
  }
}

std::string describe_long_waits(std::span<MessageOperation* const> requests,
                                transport::JobRanks job_ranks) {
  std::vector<std::string> calls;
  std::vector<std::string> begun;
  for (const MessageOperation* const request : requests) {
    if (request->has_waited_long()) {
      (request->is_attended ? calls : begun).push_back(describe(*request, job_ranks));
    }
  }
  if (begun.empty()) {
    return calls.empty() ? "" : fmt::format("waits in {}", list(calls));
  }
  const std::string in_call = calls.empty() ? "" : fmt::format("waits in {}, and ", list(calls));
  return fmt::format("{}has {} under way", in_call, list(begun));
}

}  // namespace unisono::engine
