#include "unisono/health/answers.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread_stacks.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/rank_wait.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"

namespace unisono::health {
namespace {

constexpr std::chrono::seconds kBetweenDumps{2};

// A pool of workers looks alike from the second on.
constexpr std::size_t kMaxThreads = 32;

// The answer that a question is owed: `otherwise`, until it is written over. Sent by whoever drops
// it last; by one who drops an event of a group that is never made, say.
std::shared_ptr<std::vector<std::byte>> owe(const Heard& heard, std::vector<std::byte> otherwise) {
  return {new std::vector<std::byte>(std::move(otherwise)),
          [reply = heard.reply](std::vector<std::byte>* frame) {
            const std::unique_ptr<std::vector<std::byte>> owner(frame);
            try {
              reply(std::move(*frame));
            } catch (const std::exception&) {
              return;  // Out of memory: who asked waits until its time is up.
            }
          }};
}

std::uint32_t group_of(const transport::Frame& frame) {
  return static_cast<std::uint32_t>(frame.sequence);
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

// A rank that knows the group no more, or is about to leave it, has left it; a failed one with the
// failure.
void answer_status(const Heard& heard, GroupRegistry& groups, StackDump& stacks) {
  const std::uint32_t number = group_of(heard.frame);
  const std::uint32_t question = heard.frame.question;
  const std::optional<Error> end = groups.find_failure(number);
  const transport::Departure departure = groups.find_departure(number, heard.rank);
  groups.notify(
      number,
      [&groups,
       owed = owe(heard,
                  end ? transport::encode_abort(number, *end, question)
                      : transport::encode_leave(number, departure, question)),
       number,
       question](MonitoredGroup& group) {
        // An idle rank would not read what the asking rank has sent before.
        group.listen_for_messages();
        if (const std::optional<Error> failure = group.find_failure()) {
          *owed = transport::encode_abort(number, *failure, question);
        } else if (std::optional<transport::RankProgress> progress = group.own_progress()) {
          progress->elsewhere = describe_elsewhere(group, groups);
          *owed = transport::encode_rank_progress(*progress, question);
        }
      });
  if (groups.find(number) != nullptr) {
    stacks.show(heard.rank);
  }
}

void answer_wait(const Heard& heard, GroupRegistry& groups) {
  const transport::Frame none{.kind = transport::FrameKind::kWait,
                              .question = heard.frame.question};
  const auto owed = owe(heard, transport::encode(none, {}));
  if (const std::optional<RankWait> waiter = decode_wait(heard.payload)) {
    groups.notify(group_of(heard.frame), [owed, waiter, none](const MonitoredGroup& group) {
      if (const std::optional<RankWait> wait = group.find_stuck_wait(*waiter)) {
        *owed = transport::encode(none, encode_wait(*wait));
      }
    });
  }
}

// What ends with the reply: the asking rank waits until the group has heard.
void pass_verdict(const Heard& heard, GroupRegistry& groups) {
  const auto owed =
      owe(heard,
          transport::encode(
              {.kind = transport::FrameKind::kHeard, .question = heard.frame.question}, {}));
  const Error verdict = transport::decode_abort(heard.frame, heard.payload);
  const bool is_end = heard.frame.kind == transport::FrameKind::kVerdictEnd;
  groups.notify(group_of(heard.frame), [owed, verdict, is_end](MonitoredGroup& group) {
    is_end ? group.end_with(verdict) : group.hear_verdict(verdict);
  });
}

void pass_abort(const Heard& heard, GroupRegistry& groups) {
  const Error reason = transport::decode_abort(heard.frame, heard.payload);
  groups.notify(group_of(heard.frame), [rank = heard.rank, reason](MonitoredGroup& group) {
    group.note_abort(rank, reason);
  });
}

}  // namespace

StackDump::StackDump(Logger logger)
    : logger_(std::move(logger)), next_(Deadline::after(std::chrono::seconds::zero())) {}

void StackDump::show(int asking_rank) noexcept {
  const MutexLock lock(mutex_);
  if (!logger_.is_enabled(LogLevel::kDebug) || !next_.has_passed()) {
    return;
  }
  next_ = Deadline::after(kBetweenDumps);
  try {
    for (const ThreadStack& stack : take_stacks(kMaxThreads)) {
      std::string text = fmt::format(
          "stack of thread {} ({}), asked for by rank {}:", stack.thread, stack.name, asking_rank);
      if (!stack.problem.empty()) {
        text += " none, as " + stack.problem;
      }
      for (std::size_t i = 0; i < stack.frames.size(); ++i) {
        text += fmt::format("\n  #{} {}", i, stack.frames[i]);
      }
      logger_.debug(text);
    }
  } catch (const std::exception&) {
    return;  // Out of memory, say.
  }
}

bool answer(const Heard& heard, GroupRegistry& groups, StackDump& stacks) {
  switch (heard.frame.kind) {
    case transport::FrameKind::kAbort:
      pass_abort(heard, groups);
      return true;
    case transport::FrameKind::kAsk:
      answer_status(heard, groups, stacks);
      return true;
    case transport::FrameKind::kAskWait:
      answer_wait(heard, groups);
      return true;
    case transport::FrameKind::kVerdict:
    case transport::FrameKind::kVerdictEnd:
      pass_verdict(heard, groups);
      return true;
    case transport::FrameKind::kData:
    case transport::FrameKind::kLeave:
    case transport::FrameKind::kPacket:
    case transport::FrameKind::kRankProgress:
    case transport::FrameKind::kWait:
    case transport::FrameKind::kHeard:
    case transport::FrameKind::kEnded:
      break;
  }
  return false;
}

}  // namespace unisono::health
