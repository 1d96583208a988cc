#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/group_numbers.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/engine/group_engine.h"
#include "unisono/health/control_link.h"
#include "unisono/health/group_contacts.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/relayed_error.h"

namespace unisono::comm {
namespace {

// Of a large group.
constexpr std::size_t kMostNamedRanks = 16;

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

int Membership::rank_of(int job_rank) const {
  const auto found = std::find_if(
      setup_.roster.members.begin(),
      setup_.roster.members.end(),
      [job_rank](const rendezvous::Member& member) { return member.rank == job_rank; });
  return found == setup_.roster.members.end()
             ? -1
             : static_cast<int>(found - setup_.roster.members.begin());
}

void Membership::note_abort(int job_rank, const Error& reason) {
  const int rank = rank_of(job_rank);
  if (rank < 0) {
    return;
  }
  const bool is_news = !failure_.is_set();
  note_reason(rank, reason);
  if (is_news && !ranks_.is_on_node(rank)) {
    health::tell_node(contacts(), failure_.error());
  }
}

void Membership::note_reason(int rank, const Error& reason) {
  const Error known = transport::relayed(ranks_.describe(rank), reason);
  failure_.set(find_verdict().value_or(
      Error(known.code(), fmt::format("{} {}", ranks_.prefix(), known.what()))));
}

// A rank that needed nothing from this one may have ended its part of what it took for the same
// operation, and be elsewhere since; and this rank may have.
void Membership::note_rank_progress(int rank, const transport::RankProgress& theirs) {
  {
    const MutexLock lock(late_mutex_);
    std::uint64_t& n_finished = n_finished_on_node_[topology_.node_of(rank)];
    n_finished = std::max(n_finished, theirs.n_finished_on_node);
  }
  const std::optional<transport::RankProgress> mine = native_->own_progress();
  if (mine && mine->sequence > 0 && theirs.sequence == mine->sequence &&
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

void Membership::note_end(int job_rank, health::ControlLink::End how) {
  const int rank = rank_of(job_rank);
  if (rank < 0) {
    return;
  }
  if (how == health::ControlLink::End::kJunk) {
    note_failure(rank, ErrorCode::kCorruptData, "sent bytes that are no frame");
  } else if (!ranks_.find_departed(std::span(&rank, 1)) &&
             !ranks_.has_departed_from_messages(rank)) {
    note_failure(rank,
                 ErrorCode::kPeerLost,
                 "is gone: its process ended without leaving the group (killed, or crashed)");
  }
}

void Membership::note_failure(int rank, ErrorCode code, const std::string& what) {
  failure_.set(find_verdict().value_or(
      Error(code, fmt::format("{} {} {}", ranks_.prefix(), ranks_.describe(rank), what))));
}

std::string Membership::describe_activity() const {
  const std::optional<transport::RankProgress> rank_progress = native_->own_progress();
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

// A message whose time is up waits for answers with the lock held that listening takes.
void Membership::listen_for_messages() noexcept {
  if (!status_client_.is_hearing()) {
    native_->listen_for_messages();
  }
}

std::optional<Error> Membership::find_failure() const {
  return failure_.is_set() ? std::optional(failure_.error()) : std::nullopt;
}

std::optional<transport::RankProgress> Membership::own_progress() const {
  return native_->own_progress();
}

void Membership::deliver(const net::HelloInfo& peer,
                         Fd socket,
                         const std::optional<Error>& shortage) {
  const int rank = rank_of(peer.rank);
  if (shortage && rank >= 0) {
    failure_.set({shortage->code(),
                  fmt::format("{} can't keep the connection of {}: {}",
                              ranks_.prefix(),
                              ranks_.describe(rank),
                              shortage->what())});
  }
  if (failure_.is_set()) {
    // It came after the others were told.
    native_->turn_away(socket.get(), failure_.error());
  } else if (rank >= 0) {
    native_->deliver(rank, peer.purpose, std::move(socket));
  }
}

}  // namespace unisono::comm
