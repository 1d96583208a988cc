#include "unisono/health/watcher.h"

#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLRDHUP)

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/thread.h"
#include "unisono/health/answers.h"
#include "unisono/health/control_link.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/group_contacts.h"
#include "unisono/health/group_registry.h"
#include "unisono/health/monitored_group.h"
#include "unisono/health/node_watch.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {
namespace {

// A control connection stays here; any other goes to the group that it is for.
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
      .frame = [&groups, &stacks](const Heard& heard) { return answer(heard, groups, stacks); },
      .end =
          [&groups](int rank, ControlLink::End how) {
            groups.notify_all([rank, how](MonitoredGroup& group) { group.note_end(rank, how); });
          }};
}

// Between looks at the connections that nobody waits for.
constexpr std::chrono::seconds kListening{1};

// Between tries of what failed.
constexpr std::chrono::milliseconds kPause{100};

std::vector<int> others_of_node(const rendezvous::Roster& roster) {
  std::vector<int> ranks;
  for (const rendezvous::Member& member : roster.members) {
    if (member.node == roster.self().node && member.rank != roster.rank) {
      ranks.push_back(member.rank);
    }
  }
  return ranks;
}

Error error_of_a_blind(const rendezvous::Roster& roster) {
  return {
      ErrorCode::kInternal,
      fmt::format(
          "[rank {}/{}] can't watch the other ranks any more", roster.rank, roster.world_size())};
}

}  // namespace

Watcher::Watcher(WatcherParts parts)
    : loop_(std::make_shared<net::EventLoop>()),
      groups_(parts.groups),
      blind_(error_of_a_blind(parts.roster)),
      stacks_(parts.logger),
      control_(loop_,
               parts.roster,
               parts.session.secret,
               std::move(parts.contact),
               callbacks_of(parts.groups, stacks_),
               parts.logger),
      acceptor_(
          *loop_,
          parts.data_listener,
          {.job = parts.roster.job, .purpose = transport::kDataPurpose, .rank = parts.roster.rank},
          parts.session.secret,
          parts.roster.world_size(),
          parts.logger,
          deliver_to(control_, parts.groups)),
      others_(others_of_node(parts.roster)),
      node_watch_(*loop_, parts.roster, std::move(parts.memory), [this](int rank, bool is_news) {
        note_end(rank, is_news);
      }) {
  loop_->post([this] { node_watch_.start(); });
  if (topology_of(parts.roster).n_nodes() > 1) {
    listen_later();
  }
  // One of rank 0 ends when rank 0 leaves; that it died is seen otherwise.
  if (parts.session.store_fd >= 0) {
    watch_store(parts);
  }
  thread_ = start_thread(
      "unisono-watch",
      fmt::format("rank {} can't start the thread that watches its peers", parts.roster.rank),
      [this] { watch(); });
}

void Watcher::watch() noexcept {
  while (true) {
    try {
      loop_->run();
      return;
    } catch (const std::exception& problem) {
      give_up(problem);
    }
    // What is left to do is still there, and may fail again.
    std::this_thread::sleep_for(kPause);
  }
}

void Watcher::give_up(const std::exception& problem) noexcept {
  try {
    groups_.give_up({blind_.code(), fmt::format("{}: {}", blind_.what(), problem.what())});
  } catch (const std::exception&) {
    groups_.give_up(blind_);
  }
}

void Watcher::watch_store(const WatcherParts& parts) {
  const int fd = parts.session.store_fd;
  const std::string message = fmt::format(
      "the job's store at {} is gone; the job goes on, but ranks of other nodes can't say there "
      "any "
      "more why they failed",
      net::describe_peer(fd));
  loop_->add(fd, EPOLLRDHUP, [this, fd, message, logger = parts.logger](std::uint32_t /*events*/) {
    loop_->remove(fd);
    logger.warning(message);
  });
}

// Nobody else reads what other nodes say to a rank that computes.
void Watcher::listen_later() {
  (void)loop_->add_timer(Deadline::after(kListening), [this] {
    groups_.notify_present([](MonitoredGroup& group) { group.listen_for_messages(); });
    listen_later();
  });
}

// Its last frames come before its end, also for those that this rank tells of the end.
void Watcher::note_end(int rank, bool is_news) {
  control_.note_process_end(rank);
  if (is_news) {
    const transport::Frame ended{.kind = transport::FrameKind::kEnded,
                                 .sequence = static_cast<std::uint64_t>(rank)};
    control_.tell(others_, transport::encode(ended, {}), std::chrono::milliseconds::zero());
  }
}

Watcher::~Watcher() {
  stop();
}

void Watcher::stop() {
  loop_->stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace unisono::health
