#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/comm/inquirer.h"
#include "unisono/comm/job.h"
#include "unisono/comm/links.h"
#include "unisono/comm/notice.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/tcp/farewell.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {
namespace {

// Of a large group.
constexpr std::size_t kMostNamedRanks = 16;

// "group 2 (ranks 1, 3)", "the group of all ranks".
std::string describe_group(const GroupSetup& setup) {
  if (setup.number == 0) {
    return "the group of all ranks";
  }
  std::vector<int> ranks;
  for (const rendezvous::Member& member : setup.roster.members) {
    ranks.push_back(member.rank);
  }
  const auto shown = std::span(ranks).first(std::min(ranks.size(), kMostNamedRanks));
  return fmt::format("group {} (ranks {}{})",
                     setup.number,
                     fmt::join(shown, ", "),
                     shown.size() < ranks.size() ? ", ..." : "");
}

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
    const Error known = transport::relayed(ranks_.describe(rank), reason);
    failure_.set({known.code(), fmt::format("{} {}", ranks_.prefix(), known.what())});
  }
}

void Links::note_death(int job_rank) {
  const int rank = rank_of(job_rank);
  if (rank < 0 || ranks_.find_departed(std::span(&rank, 1))) {
    return;
  }
  note_failure(job_rank,
               ErrorCode::kPeerLost,
               "is gone: its process ended without leaving the group (killed, or crashed)");
}

void Links::note_failure(int job_rank, ErrorCode code, const std::string& what) {
  if (const int rank = rank_of(job_rank); rank >= 0) {
    failure_.set({code, fmt::format("{} {} {}", ranks_.prefix(), ranks_.describe(rank), what)});
  }
}

std::string Links::describe_activity() const {
  const std::optional<transport::Standing> standing = board_.own_standing();
  if (!standing) {
    return "";
  }
  std::string text = standing->waits;
  if (standing->sequence > 0 && !standing->has_finished) {
    text +=
        fmt::format("{}{} {}",
                    text.empty() ? "" : ", and ",
                    failure_.is_set() ? "gave up in" : "is in",
                    transport::describe(standing->descriptor, standing->sequence, {}, job_ranks()));
  }
  return text.empty() ? "" : fmt::format("{} of {}", text, describe_group(setup_));
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

void Links::deliver(const net::HelloInfo& visitor, Fd socket) {
  if (visitor.purpose == kInquiryPurpose) {
    if (std::optional<transport::Standing> standing = board_.own_standing()) {
      standing->elsewhere = describe_elsewhere();
      (void)net::write_some(socket.get(), tcp::encode_standing(*standing));
    }
    job_.stacks().show(visitor.rank);
    return;
  }
  if (visitor.purpose == kNoticePurpose) {
    if (const std::optional<Error> reason = read_notice(socket.get())) {
      note_abort(visitor.rank, *reason);
    }
    return;
  }
  const bool is_for_messages = visitor.purpose == tcp::kMessagePurpose;
  if (failure_.is_set()) {
    if (is_for_messages) {
      tcp::MessageMesh::welcome(socket.get());
    }
    // It came after the others were told.
    tcp::send_abort(socket.get(), setup_.number, failure_.error());
    return;
  }
  const int rank = rank_of(visitor.rank);
  if (rank >= 0 && is_for_messages) {
    message_mesh_.deliver(rank, std::move(socket));
  } else if (rank >= 0) {
    mesh_.deliver(rank, std::move(socket));
  }
}

}  // namespace unisono::comm
