#include "unisono/peers/node_peers.h"

#include <sys/epoll.h>
#include <sys/epoll.h>  // IWYU pragma: keep (EPOLLRDHUP)
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/net/unix_socket.h"

namespace unisono::peers {
namespace {

// The queue of a rank that reads is empty.
constexpr std::size_t kMostWaiting = 512;

// Limit of reads in a turn, so that other sockets get a turn.
constexpr int kMostReads = 64;

// Interval of retries while a queue is full: no event signals room.
constexpr std::chrono::milliseconds kBetweenTries{2};

}  // namespace

std::string post_name(const std::string& endpoint) {
  return endpoint + "-post";
}

NodePost::NodePost(net::EventLoop& loop,
                   Fd socket,
                   const shm::NodeMemory::Key& key,
                   const transport::RankTable& roster,
                   Callbacks callbacks)
    : loop_(loop), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {
  const std::int32_t self = roster.rank;
  std::memcpy(envelope_.data(), key.data(), key.size());
  std::memcpy(envelope_.data() + key.size(), &self, sizeof(self));
  for (const transport::Member& member : roster.members) {
    if (member.node == roster.self().node && member.job_rank != roster.rank) {
      names_.emplace(member.job_rank, post_name(member.endpoint));
    }
  }
  loop_.add(socket_.get(), EPOLLIN, [this](std::uint32_t /*events*/) { read(kMostReads); });
}

NodePost::~NodePost() {
  loop_.cancel_timer(timer_);
  loop_.remove(socket_.get());
}

void NodePost::send(int rank, OutgoingFrame parcel) {
  const auto waiting = waiting_.find(rank);
  if (waiting != waiting_.end()) {
    if (waiting->second.size() < kMostWaiting) {
      waiting->second.push_back(std::move(parcel));
    }
    return;
  }
  switch (try_send(rank, parcel)) {
    case Sent::kDone:
      return;
    case Sent::kQueueFull:
      waiting_[rank].push_back(std::move(parcel));
      flush_later();
      return;
    case Sent::kUnreachable:
      callbacks_.unreachable(rank);
  }
}

NodePost::Sent NodePost::try_send(int rank, const OutgoingFrame& parcel) {
  switch (net::send_datagram(socket_.get(), names_.at(rank), envelope_, parcel.bytes)) {
    case 0:
      return Sent::kDone;
    case EAGAIN:
    case ENOBUFS:
    case ENOMEM:
    case EINTR:
      return Sent::kQueueFull;
    default:
      return Sent::kUnreachable;
  }
}

void NodePost::flush_later() {
  if (timer_ == 0) {
    timer_ = loop_.add_timer(Deadline::after(kBetweenTries), [this] {
      timer_ = 0;
      flush();
    });
  }
}

void NodePost::flush() {
  std::vector<int> unreachable;
  for (auto& [rank, parcels] : waiting_) {
    auto next = parcels.begin();
    auto sent = Sent::kDone;
    while (next != parcels.end() && (sent = try_send(rank, *next)) == Sent::kDone) {
      ++next;
    }
    parcels.erase(parcels.begin(), sent == Sent::kUnreachable ? parcels.end() : next);
    if (sent == Sent::kUnreachable) {
      unreachable.push_back(rank);
    }
  }
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
  if (!waiting_.empty()) {
    flush_later();
  }
  for (const int rank : unreachable) {
    callbacks_.unreachable(rank);
  }
}

void NodePost::read_all() {
  read(std::numeric_limits<int>::max());
}

void NodePost::read(int most) {
  std::array<std::byte, sizeof(envelope_) + transport::kFrameBytes + transport::kMaxAbortBytes>
      buffer{};
  for (int i = 0; i < most; ++i) {
    const std::optional<net::Datagram> datagram = net::receive_datagram(socket_.get(), buffer);
    if (!datagram) {
      return;
    }
    if (datagram->uid == ::geteuid()) {
      take(std::span(buffer).first(datagram->n_bytes));
    }
  }
}

// Ignores datagrams from other senders.
void NodePost::take(std::span<const std::byte> datagram) {
  constexpr std::size_t kKeyBytes = sizeof(shm::NodeMemory::Key);
  std::int32_t rank = -1;
  if (datagram.size() < envelope_.size() ||
      std::memcmp(datagram.data(), envelope_.data(), kKeyBytes) != 0) {
    return;
  }
  std::memcpy(&rank, datagram.data() + kKeyBytes, sizeof(rank));
  if (!names_.contains(rank)) {
    return;
  }
  const std::span<const std::byte> bytes = datagram.subspan(envelope_.size());
  std::optional<transport::Frame> frame;
  if (bytes.size() >= transport::kFrameBytes) {
    frame = transport::decode(bytes.first<transport::kFrameBytes>());
  }
  if (!frame || frame->n_bytes != bytes.size() - transport::kFrameBytes ||
      !callbacks_.frame(rank, *frame, bytes.subspan(transport::kFrameBytes))) {
    callbacks_.junk(rank);
  }
}

namespace {

using shm::SeatState;

// With two, an end is detected even if a watcher is stopped.
constexpr std::size_t kMostWatched = 2;

}  // namespace

NodeWatch::NodeWatch(net::EventLoop& loop,
                     const transport::RankTable& roster,
                     shm::NodeMemory memory,
                     NoteEnd note_end)
    : loop_(loop), memory_(std::move(memory)), note_end_(std::move(note_end)) {
  for (const transport::Member& member : roster.members) {
    if (member.node == roster.self().node) {
      self_ = member.job_rank == roster.rank ? members_.size() : self_;
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

std::optional<NodeWatch::Watched> NodeWatch::open(const transport::Member& member) const {
  Watched watched;
  try {
    watched.connection =
        net::connect_unix_abstract(member.endpoint, Deadline::after(std::chrono::seconds(0)));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kPeerLost) {
      return std::nullopt;
    }
    // Other connections fill the queue, or this process has no descriptor left; the pidfd suffices.
  }
  const auto pid = static_cast<pid_t>(member.pid);
  // A rank may be a thread of this process. A pidfd of the process does not show the rank's end.
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
    fd.reset();  // An open descriptor would count as added to the loop.
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

// A rank that leaves changes its state before its socket closes.
void NodeWatch::note(std::size_t index) {
  note_end_(members_[index].job_rank, memory_.note_gone(index));
}

}  // namespace unisono::peers
