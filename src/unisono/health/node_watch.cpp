#include "unisono/health/node_watch.h"

#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLRDHUP)
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/process.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {
namespace {

using shm::SeatState;

// Of these one may be stopped.
constexpr std::size_t kMostWatched = 2;

}  // namespace

NodeWatch::NodeWatch(net::EventLoop& loop,
                     const rendezvous::Roster& roster,
                     shm::NodeMemory memory,
                     NoteEnd note_end)
    : loop_(loop), memory_(std::move(memory)), note_end_(std::move(note_end)) {
  for (const rendezvous::Member& member : roster.members) {
    if (member.node == roster.self().node) {
      self_ = member.rank == roster.rank ? members_.size() : self_;
      members_.push_back(member);
    }
  }
}

NodeWatch::~NodeWatch() {
  for (const auto& [index, watched] : watched_) {
    unwatch(watched);
  }
}

void NodeWatch::watch_next() {
  std::size_t n_watched = 0;
  for (std::size_t step = 1; step < members_.size() && n_watched < kMostWatched; ++step) {
    const std::size_t index = (self_ + step) % members_.size();
    if (watched_.contains(index)) {
      ++n_watched;
    } else if (memory_.state(index) == SeatState::kTaken) {
      std::optional<Watched> watched = open(members_[index]);
      if (!watched) {
        note(index);
        continue;
      }
      Watched& kept = watched_.emplace(index, std::move(*watched)).first->second;
      add(kept.connection, EPOLLRDHUP, index);
      add(kept.process, EPOLLIN, index);
      ++n_watched;
    }
  }
}

std::optional<NodeWatch::Watched> NodeWatch::open(const rendezvous::Member& member) const {
  Watched watched;
  try {
    watched.connection =
        net::connect_unix_abstract(member.endpoint, Deadline::after(std::chrono::seconds(0)));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kPeerLost) {
      return std::nullopt;
    }
    // Strangers fill its queue, or this process has no descriptor left: the pidfd has to do.
  }
  const auto pid = static_cast<pid_t>(member.pid);
  // The process of a rank that is a thread of this one tells nothing.
  if (pid != ::getpid()) {
    watched.process = open_pidfd(pid);
    if (!watched.process.is_open() && errno == ESRCH) {
      return std::nullopt;
    }
  }
  return watched;
}

void NodeWatch::add(Fd& fd, std::uint32_t events, std::size_t index) {
  if (!fd.is_open()) {
    return;
  }
  try {
    loop_.add(fd.get(), events, [this, index](std::uint32_t /*events*/) {
      unwatch(watched_.at(index));
      watched_.erase(index);
      note(index);
      watch_next();
    });
  } catch (...) {
    fd.reset();  // Else it would be taken for one that the loop has.
    throw;
  }
}

void NodeWatch::unwatch(const Watched& watched) {
  for (const Fd* const fd : {&watched.connection, &watched.process}) {
    if (fd->is_open()) {
      loop_.remove(fd->get());
    }
  }
}

// A rank that leaves has its state changed before its socket closes.
void NodeWatch::note(std::size_t index) {
  note_end_(members_[index].rank, memory_.note_gone(index));
}

}  // namespace unisono::health
