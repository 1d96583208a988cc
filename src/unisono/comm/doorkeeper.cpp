#include "unisono/comm/doorkeeper.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::comm {
namespace {

constexpr std::chrono::seconds kHelloTimeout{10};

// More strangers than this at a time wait outside.
constexpr std::size_t kMaxVisitors = 1024;

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
  while (visitors_.size() < kMaxVisitors) {
    net::Accepted accepted = net::accept_connection(listener_);
    if (!accepted.fd.is_open()) {
      return;
    }
    const int fd = accepted.fd.get();
    const auto timer = loop_.add_timer(Deadline::after(kHelloTimeout),
                                       [this, fd] { drop(fd, "it did not finish its hello"); });
    Visitor visitor{.socket = std::move(accepted.fd),
                    .hello = net::Hello(net::Hello::Side::kServer, secret_, mine_),
                    .timer = timer};
    visitors_.emplace(fd, std::move(visitor));
    loop_.add(fd, EPOLLIN, [this, fd](std::uint32_t) { greet(fd); });
  }
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
    if (result.status != net::IoStatus::kDone) {
      drop(fd, "it ended the connection during its hello");
      return;
    }
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
  const bool is_member = theirs.job == mine_.job && theirs.purpose == mine_.purpose &&
                         theirs.group == mine_.group && theirs.rank > mine_.rank &&
                         theirs.rank < world_size_;
  if (!is_member) {
    drop(fd,
         fmt::format("it is rank {} of job \"{}\", here for \"{}\"",
                     theirs.rank,
                     theirs.job,
                     theirs.purpose));
    return;
  }
  loop_.remove(fd);
  loop_.cancel_timer(visitor.timer);
  const int rank = theirs.rank;
  Fd socket = std::move(visitor.socket);
  visitors_.erase(fd);
  deliver_(rank, std::move(socket));
}

void Doorkeeper::drop(int fd, const std::string& reason) {
  logger_.warning(
      fmt::format("turned {} away at the data port: {}", net::describe_peer(fd), reason));
  const auto found = visitors_.find(fd);
  loop_.remove(fd);
  loop_.cancel_timer(found->second.timer);
  visitors_.erase(found);
}

}  // namespace unisono::comm
