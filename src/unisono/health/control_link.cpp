#include "unisono/health/control_link.h"

#include <sys/epoll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/io.h"
#include "unisono/transport/frame.h"

namespace unisono::health {
namespace {

// A peer that reads has none.
constexpr std::size_t kMostOutgoing = 512;

// Before others have their turn.
constexpr int kMostReads = 16;

}  // namespace

ControlLink::ControlLink(net::EventLoop& loop, Fd socket, Callbacks callbacks)
    : loop_(loop), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {
  outgoing_.reserve(1);
  loop_.add(socket_.get(), EPOLLIN, [this](std::uint32_t events) { attend(events); });
}

// A socket that is closed with unread bytes takes back what was sent last.
ControlLink::~ControlLink() {
  loop_.remove(socket_.get());
  std::array<std::byte, 4096> rest{};
  for (int i = 0; i < kMostReads; ++i) {
    if (net::read_some(socket_.get(), rest).status != net::IoStatus::kDone) {
      return;
    }
  }
}

void ControlLink::attend(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    flush();
  }
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) {
    read(kMostReads);
  }
}

void ControlLink::send(Parcel parcel) {
  if (outgoing_.size() >= kMostOutgoing) {
    return;
  }
  outgoing_.push_back(std::move(parcel));
  if (outgoing_.size() == 1) {
    flush();
  }
}

// Who reads finds that the connection has ended.
void ControlLink::flush() {
  bool is_full = false;
  while (!outgoing_.empty() && !is_full) {
    const std::span<const std::byte> rest = std::span(outgoing_.front().bytes).subspan(n_written_);
    const net::IoResult result = net::write_some(socket_.get(), rest);
    n_written_ += result.n_bytes;
    is_full = result.status == net::IoStatus::kWouldBlock;
    if (!is_full &&
        (result.status != net::IoStatus::kDone || n_written_ == outgoing_.front().bytes.size())) {
      outgoing_.erase(outgoing_.begin());
      n_written_ = 0;
    }
  }
  if (std::exchange(is_full_, is_full) != is_full) {
    loop_.modify(socket_.get(), is_full ? EPOLLIN | EPOLLOUT : EPOLLIN);
  }
}

void ControlLink::read_all() {
  read(std::numeric_limits<int>::max());
}

void ControlLink::read(int most) {
  std::array<std::byte, 4096> buffer{};
  for (int i = 0; i < most; ++i) {
    const net::IoResult result = net::read_some(socket_.get(), buffer);
    if (result.status == net::IoStatus::kWouldBlock) {
      return;
    }
    if (result.status != net::IoStatus::kDone) {
      end(End::kClosed);
      return;
    }
    std::optional<End> how;
    try {
      received_.insert(received_.end(), buffer.begin(), buffer.begin() + result.n_bytes);
      how = hear_frames() ? std::nullopt : std::optional(End::kJunk);
    } catch (const std::exception&) {
      how = End::kStarved;
    }
    if (how) {
      end(*how);
      return;
    }
  }
}

bool ControlLink::hear_frames() {
  std::span<const std::byte> rest = received_;
  while (rest.size() >= transport::kFrameBytes) {
    const std::optional<transport::Frame> frame =
        transport::decode(rest.first<transport::kFrameBytes>());
    // Data of any size has no frame here.
    if (!frame || frame->kind == transport::FrameKind::kData ||
        frame->kind == transport::FrameKind::kPacket) {
      return false;
    }
    if (rest.size() < transport::kFrameBytes + frame->n_bytes) {
      break;
    }
    if (!callbacks_.frame(*frame, rest.subspan(transport::kFrameBytes, frame->n_bytes))) {
      return false;
    }
    rest = rest.subspan(transport::kFrameBytes + frame->n_bytes);
  }
  received_.erase(received_.begin(), received_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  return true;
}

void ControlLink::end(End how) {
  const std::function<void(End)> hear_end = std::move(callbacks_.end);
  hear_end(how);
}

}  // namespace unisono::health
