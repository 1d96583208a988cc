#include "unisono/transport/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/patience.h"
#include "unisono/transport/tcp/liveness.h"

namespace unisono::tcp {
namespace {

// One attempt to connect; between attempts a group's failure is looked at.
constexpr std::chrono::milliseconds kAttempt{500};

// Listeners exist before the roster does, so a rank that can't be reached for this long is gone.
constexpr std::chrono::seconds kConnectTimeout{3};

// When a rank that is to connect is looked for first; each further look comes after twice the time.
constexpr std::chrono::milliseconds kFirstLook{250};
constexpr std::chrono::milliseconds kSecondLook{100};

}  // namespace

void check_answer(const MeshMember& member, const net::HelloInfo& theirs, const std::string& job) {
  if (theirs.rank != member.job_rank || theirs.job != job) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{} answered as rank {} of job {}, not as {} of job {}",
                            member.address.to_string(),
                            theirs.rank,
                            theirs.job,
                            member.name,
                            job));
  }
}

Mesh::Mesh(std::vector<MeshMember> members, std::string secret, net::HelloInfo mine)
    : members_(std::move(members)),
      traffic_(members_.size()),
      secret_(std::move(secret)),
      mine_(std::move(mine)) {}

Connection& Mesh::connection(int rank, transport::Patience& patience) {
  std::unique_ptr<Connection>& connection = connections_[rank];
  if (connection == nullptr) {
    const bool connects = members_[static_cast<std::size_t>(rank)].job_rank < mine_.rank;
    connection =
        make_connection(rank, connects ? connect(rank, patience) : await_delivery(rank, patience));
  }
  return *connection;
}

std::unique_ptr<Connection> Mesh::make_connection(int rank, Fd socket) const {
  net::set_no_delay(socket.get());
  net::set_idle_timeout(socket.get(), kLivenessTimeout);
  return std::make_unique<Connection>(
      rank, members_[static_cast<std::size_t>(rank)].name, mine_.group, std::move(socket));
}

Fd Mesh::connect(int rank, transport::Patience& patience) const {
  const auto late_ranks = [rank] { return std::vector<int>{rank}; };
  const MeshMember& member = members_[static_cast<std::size_t>(rank)];
  const Deadline last_attempt = Deadline::after(kConnectTimeout);
  while (true) {
    patience.check(late_ranks);
    Fd socket;
    try {
      // All ranks have listened since before they met: one that refuses is gone.
      socket = net::connect_tcp(member.address,
                                earlier(patience.deadline(), Deadline::after(kAttempt)),
                                net::IfRefused::kGiveUp);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kTimeout && !last_attempt.has_passed()) {
        continue;
      }
      throw Error(ErrorCode::kPeerLost,
                  fmt::format("{} can't be reached: {}", member.name, error.what()));
    }
    net::set_liveness_timeout(socket.get(), kLivenessTimeout);
    const net::HelloInfo theirs = say_hello(socket.get(), rank, patience);
    check_answer(member, theirs, mine_.job);
    return socket;
  }
}

// Stays awake to the group's failure: a stopped rank's kernel takes the connection, and the rank
// says nothing.
net::HelloInfo Mesh::say_hello(int fd, int rank, transport::Patience& patience) const {
  const auto late_ranks = [rank] { return std::vector<int>{rank}; };
  const std::string& name = members_[static_cast<std::size_t>(rank)].name;
  net::Hello hello(net::Hello::Side::kClient, secret_, mine_);
  std::array<std::byte, 1024> buffer{};
  while (true) {
    // A hello's messages fit into any socket's buffer.
    net::write_all(fd, hello.take_output(), patience.deadline(), name);
    if (hello.state() == net::Hello::State::kDone) {
      return hello.theirs();
    }
    if (hello.state() == net::Hello::State::kFailed) {
      throw Error(hello.error().code(),
                  fmt::format("hello with {}: {}", name, hello.error().what()));
    }
    const std::size_t n_wanted = std::min(buffer.size(), hello.n_bytes_wanted());
    const net::IoResult result = net::read_some(fd, std::span(buffer).first(n_wanted));
    if (result.status == net::IoStatus::kDone) {
      (void)hello.feed(std::span(buffer).first(result.n_bytes));
    } else if (result.status == net::IoStatus::kWouldBlock) {
      patience.check(late_ranks);
      wait(fd, patience.next_check());
    } else {
      throw Error(ErrorCode::kPeerLost,
                  fmt::format("{} ended the connection during the hello", name));
    }
  }
}

Fd Mesh::await_delivery(int rank, transport::Patience& patience) {
  const auto late_ranks = [rank] { return std::vector<int>{rank}; };
  const auto& [job_rank, address, name] = members_[static_cast<std::size_t>(rank)];
  auto next_look = Deadline::after(kFirstLook);
  auto until_next = 2 * kFirstLook;
  bool was_refused = false;
  while (true) {
    clear_wakeups();
    if (Fd socket = take_delivered(rank); socket.is_open()) {
      return socket;
    }
    patience.check(late_ranks);
    if (next_look.has_passed()) {
      const bool is_refused = net::is_refused(address, Deadline::after(kAttempt));
      // The second time: its connection may have been on the way here when it left.
      if (is_refused && was_refused) {
        throw Error(
            ErrorCode::kPeerLost,
            fmt::format("{} is gone: nobody listens at {} any more", name, address.to_string()));
      }
      was_refused = is_refused;
      next_look = Deadline::after(is_refused ? kSecondLook : until_next);
      until_next *= 2;
    }
    (void)net::wait_for(wakeup_.fd(), POLLIN, earlier(patience.next_check(), next_look));
  }
}

Fd Mesh::take_delivered(int rank) {
  const MutexLock lock(mutex_);
  const auto found = delivered_.find(rank);
  if (found == delivered_.end()) {
    return {};
  }
  Fd socket = std::move(found->second);
  delivered_.erase(found);
  return socket;
}

// Until `fd` can be read, or somebody calls wake().
void Mesh::wait(int fd, Deadline deadline) const {
  std::array<pollfd, 2> polls{{{.fd = fd, .events = POLLIN, .revents = 0},
                               {.fd = wakeup_.fd(), .events = POLLIN, .revents = 0}}};
  (void)::poll(polls.data(), polls.size(), deadline.poll_timeout_ms());
  if (polls[1].revents != 0) {
    clear_wakeups();
  }
}

void Mesh::adopt_delivered() {
  std::map<int, Fd> delivered;
  {
    const MutexLock lock(mutex_);
    delivered.swap(delivered_);
  }
  for (auto& [rank, socket] : delivered) {
    std::unique_ptr<Connection>& connection = connections_[rank];
    if (connection == nullptr) {
      connection = make_connection(rank, std::move(socket));
    }
  }
}

void Mesh::close() {
  connections_.clear();
  const MutexLock lock(mutex_);
  delivered_.clear();
}

void Mesh::deliver(int rank, Fd socket) {
  {
    const MutexLock lock(mutex_);
    delivered_.insert_or_assign(rank, std::move(socket));
  }
  wake();
}

std::vector<Connection*> Mesh::open_connections() const {
  std::vector<Connection*> open;
  for (const auto& [rank, connection] : connections_) {
    if (connection != nullptr) {
      open.push_back(connection.get());
    }
  }
  return open;
}

}  // namespace unisono::tcp
