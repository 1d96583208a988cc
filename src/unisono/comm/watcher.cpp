#include "unisono/comm/watcher.h"

#include <fmt/format.h>
#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLRDHUP)

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/thread.h"
#include "unisono/comm/links.h"
#include "unisono/comm/status_client.h"
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node.h"
#include "unisono/transport/tcp/leave_frames.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {
namespace {

// The socket goes to the group that it is for. An inquiry for one that this rank has left has its
// answer here.
Acceptor::Deliver deliver_to(GroupRegistry& groups) {
  return [&groups](const net::HelloInfo& peer, Fd socket, const std::optional<Error>& shortage) {
    if (peer.purpose == kStatusPurpose) {
      const transport::Departure departure = groups.find_departure(peer.group, peer.rank);
      if (departure.from_operations || departure.from_messages) {
        tcp::send_leave(socket.get(), peer.group, departure);
        return;
      }
    }
    auto shared = std::make_shared<Fd>(std::move(socket));
    groups.notify(peer.group, [peer, shared, shortage](Links& links) {
      if (shortage) {
        links.note_shortage(peer, *shortage);
      }
      links.deliver(peer, std::move(*shared));
    });
  };
}

// Between looks at the connections that nobody waits for.
constexpr std::chrono::seconds kListening{1};

// Between tries of what failed.
constexpr std::chrono::milliseconds kPause{100};

bool has_several_nodes(const rendezvous::Roster& roster) {
  return std::any_of(
      roster.members.begin(), roster.members.end(), [&](const rendezvous::Member& member) {
        return member.node != roster.self().node;
      });
}

Error error_of_a_blind(const rendezvous::Roster& roster) {
  return {
      ErrorCode::kInternal,
      fmt::format(
          "[rank {}/{}] can't watch the other ranks any more", roster.rank, roster.world_size())};
}

}  // namespace

Watcher::Watcher(const WatcherParts& parts)
    : groups_(parts.groups),
      blind_(error_of_a_blind(parts.roster)),
      acceptor_(loop_,
                parts.data_listener,
                {.job = parts.roster.job, .purpose = tcp::kDataPurpose, .rank = parts.roster.rank},
                parts.session.secret,
                parts.roster.world_size(),
                parts.logger,
                deliver_to(parts.groups)) {
  for (const shm::NodePeer& peer : parts.peers) {
    const auto& member = parts.roster.members[static_cast<std::size_t>(peer.rank)];
    watches_.push_back(
        std::make_unique<PeerWatch>(loop_, peer, member, parts.groups, parts.stacks));
  }
  if (has_several_nodes(parts.roster)) {
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
      loop_.run();
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
  loop_.add(fd, EPOLLRDHUP, [this, fd, message, logger = parts.logger](std::uint32_t /*events*/) {
    loop_.remove(fd);
    logger.warning(message);
  });
}

// Nobody else reads what other nodes say to a rank that computes.
void Watcher::listen_later() {
  (void)loop_.add_timer(Deadline::after(kListening), [this] {
    groups_.notify_present([](Links& links) { links.listen_for_messages(); });
    listen_later();
  });
}

Watcher::~Watcher() {
  loop_.stop();
  thread_.join();
}

}  // namespace unisono::comm
