#include "unisono/health/answers.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/health/abort_notification.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/stack_dump.h"
#include "unisono/health/status_client.h"
#include "unisono/health/wait_inquiry.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/leave_frames.h"

namespace unisono::health {
namespace {

// It is sent with the end of the hello; meanwhile the watcher does nothing else.
constexpr std::chrono::milliseconds kQuestionTimeout{200};

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

// What this rank does in its other groups; what it gave up in comes last, for it is over.
std::string describe_elsewhere(const MonitoredGroup& group, GroupRegistry& groups) {
  std::vector<std::string> phrases;
  std::vector<std::string> given_up;
  groups.notify_present([&](const MonitoredGroup& other) {
    const std::string activity = &other == &group ? "" : other.describe_activity();
    if (!activity.empty()) {
      (other.find_failure() ? given_up : phrases).push_back(activity);
    }
  });
  phrases.insert(phrases.end(), given_up.begin(), given_up.end());
  return join(phrases);
}

void answer_status(const MonitoredGroup& group,
                   GroupRegistry& groups,
                   const net::HelloInfo& peer,
                   int socket) {
  if (const std::optional<Error> failure = group.find_failure()) {
    transport::send_abort(socket, peer.group, *failure);
  } else if (std::optional<transport::RankProgress> progress = group.own_progress()) {
    progress->elsewhere = describe_elsewhere(group, groups);
    (void)net::write_some(socket, transport::encode_rank_progress(*progress));
  }
}

void answer_wait(const MonitoredGroup& group, int socket) {
  const std::optional<RankWait> waiter = read_wait(socket, Deadline::after(kQuestionTimeout));
  if (const auto wait = waiter ? group.find_stuck_wait(*waiter) : std::nullopt) {
    (void)net::write_some(socket, encode_wait(*wait));
  }
}

}  // namespace

void answer(MonitoredGroup& group,
            GroupRegistry& groups,
            StackDump& stacks,
            const net::HelloInfo& peer,
            Fd socket) {
  if (peer.purpose == kStatusPurpose) {
    answer_status(group, groups, peer, socket.get());
    stacks.show(peer.rank);
  } else if (peer.purpose == kWaitPurpose) {
    answer_wait(group, socket.get());
  } else if (peer.purpose == kVerdictPurpose || peer.purpose == kVerdictEndPurpose) {
    if (const std::optional<Error> verdict = read_abort_notification(socket.get())) {
      group.hear_verdict(peer.purpose, *verdict);
    }
  } else if (peer.purpose == kAbortPurpose) {
    if (const std::optional<Error> reason = read_abort_notification(socket.get())) {
      group.pass_on(peer.rank, *reason);
    }
  } else {
    group.deliver(peer, std::move(socket));
  }
}

}  // namespace unisono::health
