#include "unisono/transport/tcp/mesh.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
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

namespace unisono::tcp {
namespace {

// One attempt to connect; between attempts a group's failure is looked at.
constexpr std::chrono::milliseconds kAttempt{500};

// Listeners exist before the roster does, so a rank that can't be reached for this long is gone.
constexpr std::chrono::seconds kConnectTimeout{3};

// A peer whose machine vanished is noticed after this long without an answer.
constexpr std::chrono::seconds kLivenessTimeout{20};

}  // namespace

Mesh::Mesh(std::vector<MeshMember> members, std::string secret, net::HelloInfo mine)
    : members_(std::move(members)),
      secret_(std::move(secret)),
      mine_(std::move(mine)),
      wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wakeup_.is_open()) {
    throw system_error("creating an eventfd", errno);
  }
}

Connection& Mesh::connection(int rank, transport::Patience& patience) {
  std::unique_ptr<Connection>& connection = connections_[rank];
  if (connection == nullptr) {
    Fd socket = rank < mine_.rank ? connect(rank, patience) : await_delivery(rank, patience);
    net::set_liveness_timeout(socket.get(), kLivenessTimeout);
    connection = std::make_unique<Connection>(
        rank, members_[static_cast<std::size_t>(rank)].name, std::move(socket));
  }
  return *connection;
}

Fd Mesh::connect(int rank, transport::Patience& patience) const {
  const auto late_ranks = [rank] { return std::vector<int>{rank}; };
  const auto& [address, name] = members_[static_cast<std::size_t>(rank)];
  const Deadline last_attempt = Deadline::after(kConnectTimeout);
  while (true) {
    patience.check(late_ranks);
    try {
      const Deadline attempt = earlier(patience.deadline(), Deadline::after(kAttempt));
      Fd socket = net::connect_tcp(address, attempt);
      const net::HelloInfo theirs =
          net::connect_hello(socket.get(), secret_, mine_, patience.deadline());
      if (theirs.rank != rank || theirs.job != mine_.job) {
        throw Error(ErrorCode::kMismatch,
                    fmt::format("{} answered as rank {} of job {}, not as rank {} of job {}",
                                address.to_string(),
                                theirs.rank,
                                theirs.job,
                                rank,
                                mine_.job));
      }
      return socket;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kTimeout || last_attempt.has_passed()) {
        throw Error(
            error.code() == ErrorCode::kTimeout ? ErrorCode::kPeerLost : error.code(),
            fmt::format("connecting to {} at {}: {}", name, address.to_string(), error.what()));
      }
    }
  }
}

Fd Mesh::await_delivery(int rank, transport::Patience& patience) {
  const auto late_ranks = [rank] { return std::vector<int>{rank}; };
  while (true) {
    clear_wakeups();
    {
      const MutexLock lock(mutex_);
      const auto found = delivered_.find(rank);
      if (found != delivered_.end()) {
        Fd socket = std::move(found->second);
        delivered_.erase(found);
        return socket;
      }
    }
    patience.check(late_ranks);
    (void)net::wait_for(wakeup_.get(), POLLIN, patience.next_check());
  }
}

void Mesh::deliver(int rank, Fd socket) {
  {
    const MutexLock lock(mutex_);
    delivered_.insert_or_assign(rank, std::move(socket));
  }
  wake();
}

void Mesh::wake() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof(one));
}

void Mesh::clear_wakeups() const noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n_read = ::read(wakeup_.get(), &count, sizeof(count));
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
