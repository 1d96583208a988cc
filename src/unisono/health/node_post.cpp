#include "unisono/health/node_post.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/health/control_link.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {
namespace {

// A rank that reads has none.
constexpr std::size_t kMostWaiting = 512;

// Before others have their turn.
constexpr int kMostReads = 64;

// Until a full queue may have room: no event says when.
constexpr std::chrono::milliseconds kBetweenTries{2};

}  // namespace

std::string post_name(const std::string& endpoint) {
  return endpoint + "-post";
}

NodePost::NodePost(net::EventLoop& loop,
                   Fd socket,
                   const shm::NodeMemory::Key& key,
                   const rendezvous::Roster& roster,
                   Callbacks callbacks)
    : loop_(loop), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {
  const std::int32_t self = roster.rank;
  std::memcpy(envelope_.data(), key.data(), key.size());
  std::memcpy(envelope_.data() + key.size(), &self, sizeof(self));
  for (const rendezvous::Member& member : roster.members) {
    if (member.node == roster.self().node && member.rank != roster.rank) {
      names_.emplace(member.rank, post_name(member.endpoint));
    }
  }
  loop_.add(socket_.get(), EPOLLIN, [this](std::uint32_t /*events*/) { read(kMostReads); });
}

NodePost::~NodePost() {
  loop_.cancel_timer(timer_);
  loop_.remove(socket_.get());
}

void NodePost::send(int rank, Parcel parcel) {
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

NodePost::Sent NodePost::try_send(int rank, const Parcel& parcel) {
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

// Ignores datagrams of strangers.
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

}  // namespace unisono::health
