#include "unisono/peers/peer_monitor.h"

#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLRDHUP)

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "unisono/base/fd.h"
#include "unisono/base/stack_trace.h"
#include "unisono/base/thread.h"
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"
#include "unisono/peers/control_link.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/frame.h"

namespace unisono::peers {
namespace {

// Interval of stack dumps in the log.
constexpr std::chrono::seconds kBetweenDumps{2};

// Further threads are usually identical workers of a pool.
constexpr std::size_t kMaxThreads = 32;

// Returns the reply to a question, initially `otherwise`, which the group's event may overwrite.
// The last owner sends the reply, even if it drops an event of a group that is never made.
std::shared_ptr<std::vector<std::byte>> owe(const IncomingFrame& heard,
                                            std::vector<std::byte> otherwise) {
  return {new std::vector<std::byte>(std::move(otherwise)),
          [reply = heard.reply](std::vector<std::byte>* frame) {
            const std::unique_ptr<std::vector<std::byte>> owner(frame);
            try {
              reply(std::move(*frame));
            } catch (const std::exception&) {
              return;  // Out of memory: the asking rank waits until its time limit.
            }
          }};
}

std::uint32_t group_of(const transport::Frame& frame) {
  return static_cast<std::uint32_t>(frame.sequence);
}

// Joins phrases about groups, as many as fit into a note, and at least the first.
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

// Describes the activity of this rank in its other groups. Failed groups come last.
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

// If this rank no longer has the group, or is about to leave the group, the reply is a departure,
// or the failure of a failed group.
void answer_status(const IncomingFrame& heard, GroupRegistry& groups, StackDump& stacks) {
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
        // An idle rank would not read earlier messages of the asking rank.
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

// Replies with the wait that blocks this rank's part for the asking rank's wait, or with an empty
// frame.
void answer_wait(const IncomingFrame& heard, GroupRegistry& groups) {
  const transport::Frame none{.kind = transport::FrameKind::kWait,
                              .question = heard.frame.question};
  const auto owed = owe(heard, transport::encode(none, {}));
  if (const std::optional<transport::Stall> waiter = transport::decode_stall(heard.payload)) {
    groups.notify(group_of(heard.frame), [owed, waiter, none](const MonitoredGroup& group) {
      if (const std::optional<transport::Stall> wait = group.find_stuck_wait(*waiter)) {
        *owed = transport::encode(none, transport::encode(*wait));
      }
    });
  }
}

// The reply is sent after the group has received the verdict; the asking rank waits for it.
void pass_verdict(const IncomingFrame& heard, GroupRegistry& groups) {
  const auto owed =
      owe(heard,
          transport::encode({.kind = transport::FrameKind::kAck, .question = heard.frame.question},
                            {}));
  const Error verdict = transport::decode_abort(heard.frame, heard.payload);
  const bool is_end = heard.frame.kind == transport::FrameKind::kDeadlockCommit;
  groups.notify(group_of(heard.frame), [owed, verdict, is_end](MonitoredGroup& group) {
    is_end ? group.end_with(verdict) : group.set_deadlock(verdict);
  });
}

// Passes another rank's failure to the group, now or when the group is made. Sends no reply.
void pass_abort(const IncomingFrame& heard, GroupRegistry& groups) {
  const Error reason = transport::decode_abort(heard.frame, heard.payload);
  groups.notify(group_of(heard.frame), [rank = heard.rank, reason](MonitoredGroup& group) {
    group.note_abort(rank, reason);
  });
}

}  // namespace

StackDump::StackDump(base::Logger logger)
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
          "stack of thread {} ({}), requested by rank {}:", stack.thread, stack.name, asking_rank);
      if (!stack.problem.empty()) {
        text += " none, as " + stack.problem;
      }
      for (std::size_t i = 0; i < stack.frames.size(); ++i) {
        text += fmt::format("\n  #{} {}", i, stack.frames[i]);
      }
      logger_.debug(text);
    }
  } catch (const std::exception&) {
    return;  // For example out of memory.
  }
}

bool answer(const IncomingFrame& heard, GroupRegistry& groups, StackDump& stacks) {
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
    case transport::FrameKind::kDeadlock:
    case transport::FrameKind::kDeadlockCommit:
      pass_verdict(heard, groups);
      return true;
    case transport::FrameKind::kData:
    case transport::FrameKind::kLeave:
    case transport::FrameKind::kPacket:
    case transport::FrameKind::kRankProgress:
    case transport::FrameKind::kWait:
    case transport::FrameKind::kAck:
    case transport::FrameKind::kEnded:
      break;
  }
  return false;
}

namespace {

// Control connections go to the ControlPlane, all other connections to their groups.
Acceptor::Deliver deliver_to(ControlPlane& control, GroupRegistry& groups) {
  return [&control, &groups](
             const net::HelloInfo& peer, Fd socket, const std::optional<Error>& shortage) {
    if (peer.purpose == kControlPurpose) {
      control.adopt(peer.rank, std::move(socket), shortage.has_value());
      return;
    }
    const auto shared = std::make_shared<Fd>(std::move(socket));
    groups.notify(peer.group, [peer, shared, shortage](MonitoredGroup& group) {
      group.deliver(peer, std::move(*shared), shortage);
    });
  };
}

ControlPlane::Callbacks callbacks_of(GroupRegistry& groups, StackDump& stacks) {
  return {
      .frame = [&groups,
                &stacks](const IncomingFrame& heard) { return answer(heard, groups, stacks); },
      .end =
          [&groups](int rank, ControlLink::End how) {
            groups.notify_all([rank, how](MonitoredGroup& group) { group.note_end(rank, how); });
          }};
}

// Interval between reads of connections on which no thread waits.
constexpr std::chrono::seconds kListening{1};

// Delay before a failed step is repeated.
constexpr std::chrono::milliseconds kPause{100};

std::vector<int> others_of_node(const transport::RankTable& roster) {
  std::vector<int> ranks;
  for (const transport::Member& member : roster.members) {
    if (member.node == roster.self().node && member.job_rank != roster.rank) {
      ranks.push_back(member.job_rank);
    }
  }
  return ranks;
}

Error error_of_a_blind(const transport::RankTable& roster) {
  return {
      ErrorCode::kInternal,
      fmt::format(
          "[rank {}/{}] can't watch the other ranks any more", roster.rank, roster.world_size())};
}

}  // namespace

PeerMonitor::PeerMonitor(PeerMonitorParts parts)
    : loop_(std::make_shared<net::EventLoop>()),
      groups_(parts.groups),
      blind_(error_of_a_blind(parts.roster)),
      stacks_(parts.logger),
      control_(loop_,
               parts.roster,
               parts.secret,
               std::move(parts.contact),
               callbacks_of(parts.groups, stacks_),
               parts.logger),
      acceptor_(
          *loop_,
          parts.data_listener,
          {.job = parts.roster.job, .purpose = transport::kDataPurpose, .rank = parts.roster.rank},
          parts.secret,
          parts.roster.world_size(),
          parts.logger,
          deliver_to(control_, parts.groups)),
      others_(others_of_node(parts.roster)),
      node_watch_(*loop_, parts.roster, std::move(parts.memory), [this](int rank, bool is_news) {
        note_end(rank, is_news);
      }) {
  loop_->post([this] { node_watch_.start(); });
  if (collective::Topology(parts.roster.rank, parts.roster.nodes()).n_nodes() > 1) {
    listen_later();
  }
  // The connection to a store of rank 0 is not watched: it ends when rank 0 leaves, and the death
  // of rank 0 is detected by other means.
  if (parts.store_fd >= 0) {
    watch_store(parts);
  }
  thread_ = start_thread(
      "unisono-watch",
      fmt::format("rank {} can't start the thread that watches its peers", parts.roster.rank),
      [this] { watch(); });
}

void PeerMonitor::watch() noexcept {
  while (true) {
    try {
      loop_->run();
      return;
    } catch (const std::exception& problem) {
      give_up(problem);
    }
    // The remaining work may fail again.
    std::this_thread::sleep_for(kPause);
  }
}

void PeerMonitor::give_up(const std::exception& problem) noexcept {
  try {
    groups_.give_up({blind_.code(), fmt::format("{}: {}", blind_.what(), problem.what())});
  } catch (const std::exception&) {
    groups_.give_up(blind_);
  }
}

void PeerMonitor::watch_store(const PeerMonitorParts& parts) {
  const int fd = parts.store_fd;
  const std::string message = fmt::format(
      "the job's store at {} is gone; the job goes on, but ranks of other nodes can't report their "
      "failures there any more",
      net::describe_peer(fd));
  loop_->add(fd, EPOLLRDHUP, [this, fd, message, logger = parts.logger](std::uint32_t /*events*/) {
    loop_->remove(fd);
    logger.warning(message);
  });
}

// No other thread reads the messages from other nodes while the rank computes.
void PeerMonitor::listen_later() {
  (void)loop_->add_timer(Deadline::after(kListening), [this] {
    groups_.notify_present([](MonitoredGroup& group) { group.listen_for_messages(); });
    listen_later();
  });
}

// The last frames of the rank are handled before its end is reported to other ranks.
void PeerMonitor::note_end(int rank, bool is_news) {
  control_.note_process_end(rank);
  if (is_news) {
    const transport::Frame ended{.kind = transport::FrameKind::kEnded,
                                 .sequence = static_cast<std::uint64_t>(rank)};
    control_.tell(others_, transport::encode(ended, {}), std::chrono::milliseconds::zero());
  }
}

PeerMonitor::~PeerMonitor() {
  stop();
}

void PeerMonitor::stop() {
  loop_->stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace unisono::peers
