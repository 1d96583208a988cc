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
#include "unisono/base/fd.h"
#include "unisono/comm/abort_notification.h"
#include "unisono/comm/group_numbers.h"
#include "unisono/comm/job.h"
#include "unisono/comm/links.h"
#include "unisono/comm/rank_wait.h"
#include "unisono/comm/status_client.h"
#include "unisono/comm/wait_inquiry.h"
#include "unisono/engine/native/group_transports.h"
#include "unisono/engine/native/native_engine.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/mismatch.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/leave_frames.h"

namespace unisono::comm {
namespace {

// It is sent with the end of the hello; meanwhile the watcher does nothing else.
constexpr std::chrono::milliseconds kQuestionTimeout{200};

// Of a large group.
constexpr std::size_t kMostNamedRanks = 16;

// Of phrases about a group each: as many as a note takes whole, the first at any rate.
std::string join(const std::vector<std::string>& phrases) {
  constexpr std::size_t kRoomForRest = 48;
  std::string text;
  std::size_t n = 0;
  for (const std::string& phrase : phrases) {
    const std::string part = (n == 0 ? "" : ", and ") + phrase;
    if (n > 0 && text.size() + part.size() + kRoomForRest > transport::kMaxNoteBytes) {
      return fmt::format("{}, and has calls in {} more groups", text, phrases.size() - n);
    }
    text += part;
    ++n;
  }
  return text;
}

}  // namespace

std::string describe_group(const GroupSetup& setup, const GroupNumbers& numbers) {
  if (setup.number == 0) {
    return "the group of all ranks";
  }
  std::vector<int> ranks;
  for (const rendezvous::Member& member : setup.roster.members) {
    ranks.push_back(member.rank);
  }
  const auto shown = std::span(ranks).first(std::min(ranks.size(), kMostNamedRanks));
  return fmt::format("group {} (ranks {}{})",
                     numbers.name(setup.number),
                     fmt::join(shown, ", "),
                     shown.size() < ranks.size() ? ", ..." : "");
}

int Links::rank_of(int job_rank) const {
  const auto found = std::find_if(
      setup_.roster.members.begin(),
      setup_.roster.members.end(),
      [job_rank](const rendezvous::Member& member) { return member.rank == job_rank; });
  return found == setup_.roster.members.end()
             ? -1
             : static_cast<int>(found - setup_.roster.members.begin());
}

void Links::note_departure(int job_rank) {
  if (const int rank = rank_of(job_rank); rank >= 0) {
    ranks_.note_departure(rank);
    wake();
  }
}

void Links::note_abort(int job_rank, const Error& reason) {
  if (const int rank = rank_of(job_rank); rank >= 0) {
    note_reason(rank, reason);
  }
}

void Links::note_reason(int rank, const Error& reason) {
  const Error known = transport::relayed(ranks_.describe(rank), reason);
  failure_.set(find_verdict().value_or(
      Error(known.code(), fmt::format("{} {}", ranks_.prefix(), known.what()))));
}

// A rank that needed nothing from this one may have ended its part of what it took for the same
// operation, and be elsewhere since.
void Links::note_rank_progress(int rank, const transport::RankProgress& theirs) {
  const std::optional<transport::RankProgress> mine = native_->transports().own_progress();
  if (mine && !mine->has_finished && mine->sequence > 0 && theirs.sequence == mine->sequence &&
      theirs.descriptor != mine->descriptor) {
    const Error error = transport::mismatch({.who = ranks_.describe(rank),
                                             .sequence = theirs.sequence,
                                             .descriptor = theirs.descriptor},
                                            {.who = ranks_.describe(setup_.roster.rank),
                                             .sequence = mine->sequence,
                                             .descriptor = mine->descriptor},
                                            job_ranks());
    failure_.set({error.code(), fmt::format("{} {}", ranks_.prefix(), error.what())});
  }
}

// Only this rank of its node has been sent it.
void Links::pass_on(int job_rank, const Error& reason) {
  const bool is_news = !failure_.is_set();
  note_abort(job_rank, reason);
  if (is_news && failure_.is_set()) {
    job_.tell_peers(setup_.roster,
                    [this] { return tcp::encode_abort(setup_.number, failure_.error()); });
  }
}

void Links::note_death(int job_rank) {
  const int rank = rank_of(job_rank);
  if (rank < 0 || ranks_.find_departed(std::span(&rank, 1)) ||
      ranks_.has_departed_from_messages(rank)) {
    return;
  }
  note_failure(job_rank,
               ErrorCode::kPeerLost,
               "is gone: its process ended without leaving the group (killed, or crashed)");
}

void Links::note_failure(int job_rank, ErrorCode code, const std::string& what) {
  if (const int rank = rank_of(job_rank); rank >= 0) {
    failure_.set(find_verdict().value_or(
        Error(code, fmt::format("{} {} {}", ranks_.prefix(), ranks_.describe(rank), what))));
  }
}

void Links::note_shortage(const net::HelloInfo& peer, const Error& shortage) {
  const int rank = rank_of(peer.rank);
  const bool is_to_stay = engine::GroupTransports::is_for_transports(peer.purpose);
  if (rank >= 0 && is_to_stay) {
    failure_.set({shortage.code(),
                  fmt::format("{} can't keep the connection of {}: {}",
                              ranks_.prefix(),
                              ranks_.describe(rank),
                              shortage.what())});
  }
}

std::string Links::describe_activity() const {
  const std::optional<transport::RankProgress> rank_progress = native_->transports().own_progress();
  if (!rank_progress) {
    return "";
  }
  std::string text = rank_progress->waits;
  if (rank_progress->sequence > 0 && !rank_progress->has_finished) {
    text += fmt::format(
        "{}{} {}",
        text.empty() ? "" : ", and ",
        failure_.is_set() ? "gave up in" : "is in",
        transport::describe(rank_progress->descriptor, rank_progress->sequence, {}, job_ranks()));
  }
  return text.empty() ? "" : fmt::format("{} of {}", text, describe_group(setup_, job_.numbers()));
}

std::string Links::describe_elsewhere() {
  std::vector<std::string> phrases;
  std::vector<std::string> given_up;
  job_.groups().notify_present([&](const Links& group) {
    const std::string activity = &group == this ? "" : group.describe_activity();
    if (!activity.empty()) {
      (group.failure_.is_set() ? given_up : phrases).push_back(activity);
    }
  });
  // Last, for it is over.
  phrases.insert(phrases.end(), given_up.begin(), given_up.end());
  return join(phrases);
}

void Links::answer_wait(int fd) const {
  const std::optional<RankWait> waiter = read_wait(fd, Deadline::after(kQuestionTimeout));
  if (const auto wait = waiter ? find_stuck_wait(*waiter) : std::nullopt) {
    (void)net::write_some(fd, encode_wait(*wait));
  }
}

void Links::listen_for_messages() noexcept {
  native_->messages().listen();
}

void Links::deliver(const net::HelloInfo& peer, Fd socket) {
  if (peer.purpose == kStatusPurpose) {
    if (failure_.is_set()) {
      tcp::send_abort(socket.get(), setup_.number, failure_.error());
    } else if (std::optional<transport::RankProgress> rank_progress =
                   native_->transports().own_progress()) {
      rank_progress->elsewhere = describe_elsewhere();
      (void)net::write_some(socket.get(), tcp::encode_rank_progress(*rank_progress));
    }
    job_.stacks().show(peer.rank);
    return;
  }
  if (peer.purpose == kWaitPurpose) {
    answer_wait(socket.get());
    return;
  }
  if (peer.purpose == kVerdictPurpose || peer.purpose == kVerdictEndPurpose) {
    if (const std::optional<Error> verdict = read_abort_notification(socket.get())) {
      hear_verdict(peer.purpose, *verdict);
    }
    return;
  }
  if (peer.purpose == kAbortPurpose) {
    if (const std::optional<Error> reason = read_abort_notification(socket.get())) {
      pass_on(peer.rank, *reason);
    }
    return;
  }
  if (failure_.is_set()) {
    // It came after the others were told.
    native_->transports().turn_away(peer.purpose, socket.get(), failure_.error());
  } else if (const int rank = rank_of(peer.rank); rank >= 0) {
    native_->transports().deliver(rank, peer.purpose, std::move(socket));
  }
}

}  // namespace unisono::comm
