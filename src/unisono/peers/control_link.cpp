#include "unisono/peers/control_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <array>
#include <exception>
#include <limits>
#include <utility>

#include "unisono/net/io.h"

namespace unisono::peers {
namespace {

// The queue of a peer that reads is empty.
constexpr std::size_t kMostOutgoing = 512;

// Limit of reads in a turn, so that other sockets get a turn.
constexpr int kMostReads = 16;

}  // namespace

ControlLink::ControlLink(net::EventLoop& loop, Fd socket, Callbacks callbacks)
    : loop_(loop), socket_(std::move(socket)), callbacks_(std::move(callbacks)) {
  outgoing_.reserve(1);
  loop_.add(socket_.get(), EPOLLIN, [this](std::uint32_t events) { attend(events); });
}

// Reads all data first: closing a socket with unread bytes would discard data sent last.
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

void ControlLink::send(OutgoingFrame parcel) {
  if (outgoing_.size() >= kMostOutgoing) {
    return;
  }
  outgoing_.push_back(std::move(parcel));
  if (outgoing_.size() == 1) {
    flush();
  }
}

// Ignores errors: the reading side detects the end of the connection.
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
    // Frames with data of any size are not permitted here.
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

ControlDial::ControlDial(net::EventLoop& loop,
                         transport::RankAddress member,
                         const std::string& secret,
                         net::HelloInfo mine,
                         Deadline until,
                         Done done)
    : loop_(loop),
      member_(std::move(member)),
      mine_(std::move(mine)),
      dial_(member_, secret, mine_, transport::Dial::Start::kNow),
      until_(until),
      done_(std::move(done)) {
  watch();
}

ControlDial::~ControlDial() {
  unwatch();
}

void ControlDial::advance() {
  unwatch();  // The next step may use another socket.
  Fd socket;
  std::optional<Error> problem;
  try {
    switch (dial_.progress()) {
      case transport::Dial::Outcome::kNone:
        if (!until_.has_passed()) {
          watch();
          return;
        }
        break;
      case transport::Dial::Outcome::kWelcomed:
        socket = dial_.take();
        break;
      case transport::Dial::Outcome::kTurnedAway:
        problem.emplace(
            ErrorCode::kPeerLost,
            fmt::format("{} accepts no connection any more: it is about to leave, or is gone",
                        member_.name));
        break;
      case transport::Dial::Outcome::kRefused:
        problem = transport::nobody_listens(member_);
        break;
    }
  } catch (const Error& error) {
    problem = error;
  } catch (const std::exception& error) {
    problem.emplace(ErrorCode::kSystem, error.what());
  }
  const Done done = std::move(done_);
  done(std::move(socket), problem);
}

void ControlDial::watch() {
  timer_ = loop_.add_timer(earlier(dial_.next_try(), until_), [this] { advance(); });
  if (!dial_.is_trying()) {
    return;
  }
  try {
    const pollfd next = dial_.poll();
    const std::uint32_t events = next.events == POLLIN ? EPOLLIN : EPOLLOUT;
    loop_.add(next.fd, events, [this](std::uint32_t) { advance(); });
    fd_ = next.fd;
  } catch (...) {
    unwatch();
    throw;
  }
}

void ControlDial::unwatch() {
  loop_.cancel_timer(timer_);
  if (fd_ >= 0) {
    loop_.remove(std::exchange(fd_, -1));
  }
}

}  // namespace unisono::peers
