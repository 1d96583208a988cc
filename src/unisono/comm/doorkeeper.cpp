#include "unisono/comm/doorkeeper.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/descriptor_error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/comm/inquirer.h"
#include "unisono/comm/notice.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/strangers.h"
#include "unisono/transport/tcp/message_mesh.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::seconds kHelloTimeout{10};

constexpr std::chrono::milliseconds kPause{100};

}  // namespace

Doorkeeper::Doorkeeper(net::EventLoop& loop,
                       int listener,
                       net::HelloInfo mine,
                       std::string secret,
                       int world_size,
                       Logger logger,
                       Deliver deliver)
    : loop_(loop),
      listener_(listener),
      mine_(std::move(mine)),
      secret_(std::move(secret)),
      world_size_(world_size),
      logger_(std::move(logger)),
      deliver_(std::move(deliver)) {
  loop_.add(listener_, EPOLLIN, [this](std::uint32_t) { accept_all(); });
}

void Doorkeeper::accept_all() {
  while (true) {
    if (!has_room()) {
      pause("as many visitors as it takes have not finished their hello");
      return;
    }
    net::Accepted accepted = net::accept_connection(listener_);
    if (accepted.error_number != 0) {
      pause(descriptor_error("accepting it", accepted.error_number).what());
      return;
    }
    if (!accepted.fd.is_open()) {
      return;
    }
    try {
      admit(std::move(accepted.fd));
    } catch (const std::exception& error) {
      pause(error.what());
      return;
    }
  }
}

// Makes it where somebody has had the time that any peer needs.
bool Doorkeeper::has_room() {
  if (!strangers_.is_full()) {
    return true;
  }
  const std::optional<std::uint64_t> oldest = strangers_.overdue(Deadline::Clock::now());
  if (oldest) {
    drop(static_cast<int>(*oldest), "it did not finish its hello, and others want to");
  }
  return oldest.has_value();
}

// The listener would be ready all the time, and the loop spin.
void Doorkeeper::pause(const std::string& reason) {
  logger_.warning(fmt::format("the data port can't take a connection: {}; trying again", reason));
  loop_.modify(listener_, 0);
  (void)loop_.add_timer(Deadline::after(kPause), [this] { loop_.modify(listener_, EPOLLIN); });
}

void Doorkeeper::admit(Fd socket) {
  const int fd = socket.get();
  std::string name = net::describe_peer(fd);
  const auto visitor =
      visitors_
          .emplace(fd,
                   Visitor{.socket = std::move(socket),
                           .name = std::move(name),
                           .hello = net::Hello(net::Hello::Side::kServer, secret_, mine_),
                           .timer = 0})
          .first;
  try {
    loop_.add(fd, EPOLLIN, [this, fd](std::uint32_t) {
      try {
        greet(fd);
      } catch (const std::exception& error) {
        // Out of memory, say: that ends this connection, not the rank. A member that was about to
        // be handed over is no visitor any more, and is hung up on.
        if (visitors_.contains(fd)) {
          drop(fd, error.what());
        } else {
          logger_.warning(fmt::format("lost a peer at the data port: {}", error.what()));
        }
      }
    });
  } catch (...) {
    visitors_.erase(visitor);
    throw;
  }
  strangers_.add(static_cast<std::uint64_t>(fd), Deadline::Clock::now());
  visitor->second.timer = loop_.add_timer(Deadline::after(kHelloTimeout),
                                          [this, fd] { drop(fd, "it did not finish its hello"); });
}

void Doorkeeper::greet(int fd) {
  Visitor& visitor = visitors_.at(fd);
  while (visitor.hello.state() == net::Hello::State::kRunning) {
    // Not a byte more than the hello: what follows is for the rank's own thread.
    std::array<std::byte, 1024> buffer{};
    const std::size_t n_wanted = std::min(buffer.size(), visitor.hello.n_bytes_wanted());
    const net::IoResult result = net::read_some(fd, std::span(buffer).first(n_wanted));
    if (result.status == net::IoStatus::kWouldBlock) {
      return;
    }
    if (result.status != net::IoStatus::kDone && !visitor.has_spoken) {
      forget(fd);  // Somebody looked whether this rank is there.
      return;
    }
    if (result.status != net::IoStatus::kDone) {
      drop(fd, "it ended the connection during its hello");
      return;
    }
    visitor.has_spoken = true;
    (void)visitor.hello.feed(std::span(buffer).first(result.n_bytes));
    if (!send_output(visitor)) {
      drop(fd, "it does not take the answer to its hello");
      return;
    }
  }
  finish(fd);
}

bool Doorkeeper::send_output(Visitor& visitor) {
  const std::vector<std::byte> output = visitor.hello.take_output();
  // A hello's answers fit into any socket's buffer.
  return output.empty() || net::write_some(visitor.socket.get(), output).n_bytes == output.size();
}

void Doorkeeper::finish(int fd) {
  Visitor& visitor = visitors_.at(fd);
  if (visitor.hello.state() == net::Hello::State::kFailed) {
    drop(fd, visitor.hello.error().what());
    return;
  }
  const net::HelloInfo& theirs = visitor.hello.theirs();
  if (!is_member(theirs)) {
    drop(fd,
         fmt::format("it is rank {} of job \"{}\", here for \"{}\"",
                     theirs.rank,
                     theirs.job,
                     theirs.purpose));
    return;
  }
  loop_.remove(fd);
  loop_.cancel_timer(visitor.timer);
  const net::HelloInfo member = theirs;
  logger_.debug(fmt::format(
      "rank {} at {} has opened a connection for {}", member.rank, visitor.name, member.purpose));
  Fd socket = std::move(visitor.socket);
  visitors_.erase(fd);
  strangers_.remove(static_cast<std::uint64_t>(fd));
  deliver_(member, std::move(socket));
}

bool Doorkeeper::is_member(const net::HelloInfo& theirs) const {
  if (theirs.job != mine_.job || theirs.rank < 0 || theirs.rank >= world_size_) {
    return false;
  }
  // Of each pair the higher rank connects; for all but operations whichever needs it first.
  return theirs.purpose == tcp::kMessagePurpose || theirs.purpose == kInquiryPurpose ||
                 theirs.purpose == kNoticePurpose
             ? theirs.rank != mine_.rank
             : theirs.purpose == mine_.purpose && theirs.rank > mine_.rank;
}

void Doorkeeper::drop(int fd, const std::string& reason) {
  logger_.warning(
      fmt::format("turned {} away at the data port: {}", visitors_.at(fd).name, reason));
  forget(fd);
}

void Doorkeeper::forget(int fd) {
  const auto found = visitors_.find(fd);
  loop_.remove(fd);
  loop_.cancel_timer(found->second.timer);
  visitors_.erase(found);
  strangers_.remove(static_cast<std::uint64_t>(fd));
}

}  // namespace unisono::comm
