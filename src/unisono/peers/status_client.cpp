#include "unisono/peers/status_client.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>

#include "unisono/base/process.h"

namespace unisono::peers {
namespace {

// Returns the constructor argument of JobRanks; empty if ranks have the same numbers in group and
// job.
std::vector<int> job_ranks_of(const transport::RankTable& roster) {
  std::vector<int> ranks;
  bool is_all = true;
  for (const transport::Member& member : roster.members) {
    is_all = is_all && member.job_rank == static_cast<int>(ranks.size());
    ranks.push_back(member.job_rank);
  }
  return is_all ? std::vector<int>() : ranks;
}

}  // namespace

RankStatus::RankStatus(const transport::RankTable& roster,
                       std::string prefix,
                       base::Logger logger,
                       const NodeProgress* node)
    : roster_(roster),
      job_ranks_(job_ranks_of(roster)),
      prefix_(std::move(prefix)),
      logger_(std::move(logger)),
      node_(node) {}

std::string RankStatus::describe(int rank) const {
  return transport::describe(roster_.members[static_cast<std::size_t>(rank)]);
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
    const transport::Member& member = roster_.members[static_cast<std::size_t>(rank)];
    const std::string state =
        is_on_node(rank)
            ? fmt::format(", {}", describe_process_state(static_cast<pid_t>(member.pid)))
            : "";
    const char* const separator = ends_a_clause ? ", and " : " and ";
    text += fmt::format("{}rank {} (pid {} on {}{})",
                        text.empty() ? "" : separator,
                        member.job_rank,
                        member.pid,
                        member.host,
                        state);
    const auto found = answers.find(rank);
    const std::string answer = found == answers.end() ? "" : found->second;
    std::string clause;
    if (!is_on_node(rank)) {
      clause = answer;
    } else if (node_ != nullptr) {
      transport::RankProgress rank_progress = node_->progress_of(rank);
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
  const bool can_look = node_ != nullptr && is_on_node(rank);
  const std::string refused = can_look ? node_->progress_of(rank).refused : "";
  return refused.empty()
             ? text
             : fmt::format("{}; it had refused a call for wrong arguments: \"{}\"", text, refused);
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

// The shared memory of the node contains this state.
bool RankStatus::has_left_here(int rank) const {
  return node_ != nullptr && is_on_node(rank) && node_->has_left(rank);
}

bool RankStatus::has_departed_from_messages(int rank) const {
  if (has_left_here(rank)) {
    return true;
  }
  const MutexLock lock(mutex_);
  return departed_from_messages_.contains(rank);
}

bool RankStatus::has_departed(int rank) const {
  if (has_left_here(rank)) {
    return true;
  }
  const MutexLock lock(mutex_);
  return departed_.contains(rank);
}

namespace {

// The monitor thread of a rank replies at once.
constexpr std::chrono::milliseconds kAnswerTimeout{1000};

// Used if an error waits for the reply.
constexpr std::chrono::milliseconds kShortTimeout{100};

// Limit of the ranks that a report asks. If all ranks are late, the first few suffice.
constexpr std::size_t kMaxRanks = 4;

// Returns "0.3 s" or "12 s": tenths only below 10 s.
std::string describe_time(std::chrono::milliseconds time) {
  const auto seconds = std::chrono::duration<double>(time).count();
  return seconds < 10 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.0f} s", seconds);
}

// Returns whether the rank has left the group, or can't be reached any more.
bool has_left(const Answer& answer) {
  const std::optional<transport::Frame>& frame = answer.frame;
  return frame ? frame->kind == transport::FrameKind::kLeave : answer.problem.has_value();
}

}  // namespace

Question StatusClient::question_to(int rank) const {
  return {.rank = parts_.contacts.roster.members[static_cast<std::size_t>(rank)].job_rank,
          .frame = {.kind = transport::FrameKind::kAsk, .sequence = parts_.contacts.group}};
}

bool StatusClient::is_self(int rank) const {
  return rank == parts_.contacts.roster.rank;
}

std::string StatusClient::describe_overdue(std::span<const int> ranks) {
  std::vector<int> able;
  std::copy_if(ranks.begin(), ranks.end(), std::back_inserter(able), [this](int rank) {
    return !is_self(rank) && !parts_.ranks.is_stopped(rank);
  });
  return parts_.ranks.describe_late(ranks,
                                    able.empty() ? std::map<int, std::string>() : hear(able));
}

void StatusClient::report_stall(const std::string& operation,
                                std::chrono::milliseconds waited,
                                const std::string& late,
                                std::span<const int> ranks) {
  parts_.ranks.logger().warning(fmt::format("{} {} waits since {} for {}",
                                            parts_.ranks.prefix(),
                                            operation,
                                            describe_time(waited),
                                            late));
  for (const int rank : ranks) {
    if (parts_.ranks.is_stopped(rank)) {
      parts_.ranks.logger().debug(
          fmt::format("{} is stopped, and so can't show its stack", parts_.ranks.describe(rank)));
    } else if (!is_self(rank)) {
      ask(rank);
    }
  }
}

void StatusClient::ask(int rank) noexcept {
  try {
    {
      const MutexLock lock(mutex_);
      if (is_finished_ || asked_.size() >= kMaxRanks || !asked_.insert(rank).second) {
        return;
      }
    }
    // The group, and with it this client, may end meanwhile.
    parts_.contacts.control.ask(
        question_to(rank),
        kAnswerTimeout,
        [this, &groups = parts_.groups, number = parts_.contacts.group, rank](
            const Answer& answer) {
          if (const std::shared_ptr<MonitoredGroup> kept = groups.find(number)) {
            hear_answer(rank, answer);
          }
        });
  } catch (const std::exception& error) {
    parts_.ranks.logger().debug(fmt::format(
        "{} can't ask {}: {}", parts_.ranks.prefix(), parts_.ranks.describe(rank), error.what()));
    const MutexLock lock(mutex_);
    asked_.erase(rank);
  }
}

void StatusClient::hear_answer(int rank, const Answer& answer) {
  {
    const MutexLock lock(mutex_);
    asked_.erase(rank);
    if (is_finished_) {
      return;
    }
  }
  const std::string does = describe(rank, answer, kAnswerTimeout);
  if (!does.empty()) {
    parts_.ranks.logger().warning(
        fmt::format("{} {} {}", parts_.ranks.prefix(), parts_.ranks.describe(rank), does));
  }
}

void StatusClient::finish() noexcept {
  const MutexLock lock(mutex_);
  is_finished_ = true;
}

std::map<int, std::string> StatusClient::hear(std::span<const int> ranks) {
  const std::span<const int> asked = ranks.first(std::min(ranks.size(), kMaxRanks));
  const std::vector<Answer> answers = ask_all(asked);
  std::map<int, std::string> phrases;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    phrases[asked[i]] = i < answers.size() ? describe(asked[i], answers[i], kShortTimeout) : "";
  }
  return phrases;
}

std::vector<Answer> StatusClient::ask_all(std::span<const int> ranks) {
  std::vector<Answer> answers;
  n_hearing_.fetch_add(1, std::memory_order_relaxed);
  try {
    std::vector<Question> questions;
    for (const int rank : ranks) {
      questions.push_back(question_to(rank));
    }
    answers = parts_.contacts.control.ask_all(questions, kShortTimeout);
  } catch (const std::exception& error) {
    parts_.ranks.logger().debug(fmt::format(
        "{} can't ask for the state of ranks: {}", parts_.ranks.prefix(), error.what()));
  }
  n_hearing_.fetch_sub(1, std::memory_order_relaxed);
  return answers;
}

std::vector<int> StatusClient::find_present(std::span<const int> ranks) {
  const std::vector<Answer> answers = ask_all(ranks);
  std::vector<int> present;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool has_answered = i < answers.size();
    if (has_answered) {
      (void)describe(ranks[i], answers[i], kShortTimeout);
    }
    if (!has_answered || !has_left(answers[i])) {
      present.push_back(ranks[i]);
    }
  }
  return present;
}

// Returns a clause that follows the rank's name; "" without information.
std::string StatusClient::describe(int rank,
                                   const Answer& answer,
                                   std::chrono::milliseconds timeout) {
  if (answer.frame) {
    return describe_frame(rank, *answer.frame, answer.payload);
  }
  if (!answer.problem || parts_.ranks.is_on_node(rank)) {
    return describe_silence(rank, timeout);
  }
  return answer.problem->code() == ErrorCode::kPeerLost
             ? "has left, or is gone"
             : fmt::format("can't be asked for its state: {}", answer.problem->what());
}

std::string StatusClient::describe_frame(int rank,
                                         const transport::Frame& frame,
                                         std::span<const std::byte> payload) {
  if (frame.kind == transport::FrameKind::kRankProgress) {
    return describe_progress(rank, transport::decode_rank_progress(frame, payload));
  }
  if (frame.kind == transport::FrameKind::kAbort) {
    const Error reason = transport::decode_abort(frame, payload);
    parts_.note_reason(rank, reason);
    return fmt::format("aborted: {}", reason.what());
  }
  if (parts_.ranks.is_on_node(rank)) {
    return "";
  }
  if (frame.kind == transport::FrameKind::kLeave) {
    parts_.note_departure(rank, transport::decode_departure(frame));
  }
  return "is running, but has left this group";
}

std::string StatusClient::describe_progress(int rank,
                                            const transport::RankProgress& rank_progress) {
  const bool is_here = parts_.ranks.is_on_node(rank);
  if (!is_here) {
    parts_.note_rank_progress(rank, rank_progress);
  }
  const std::string does = is_here ? rank_progress.elsewhere
                                   : transport::describe(rank_progress, parts_.ranks.job_ranks());
  const MutexLock lock(mutex_);
  last_answers_.insert_or_assign(rank, does);
  return is_here ? does : fmt::format("is running and {}", does);
}

std::string StatusClient::describe_silence(int rank, std::chrono::milliseconds timeout) {
  const MutexLock lock(mutex_);
  const auto before = last_answers_.find(rank);
  const std::string said = before == last_answers_.end() ? "" : before->second;
  if (parts_.ranks.is_on_node(rank)) {
    return said.empty() ? "" : fmt::format("as last reported, {}", said);
  }
  return fmt::format(
      "does not answer within {} s: its process may be stopped or gone, or its machine out of "
      "reach{}",
      std::chrono::duration<double>(timeout).count(),
      said.empty() ? "" : fmt::format("; as last reported, it {}", said));
}

}  // namespace unisono::peers
