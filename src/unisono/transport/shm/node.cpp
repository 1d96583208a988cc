#include "unisono/transport/shm/node.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/descriptor_error.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/process.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"

namespace unisono::shm {
namespace {

constexpr const char* kPurpose = "node";

// A stranger that connects and says nothing must not hold up the ranks behind it for long.
constexpr std::chrono::seconds kHelloTimeout{5};

// To see whether somebody listens, of a rank whose queue is full.
constexpr std::chrono::milliseconds kProbeTime{1};

// While ranks are waited for: whether they are still there.
constexpr std::chrono::milliseconds kBetweenLooks{500};

// What goes with the arena's descriptor.
struct ArenaMessage {
  std::int64_t n_bytes;
  // A std::shared_ptr<const Arena>* for a rank that is a thread of the same process, else 0. It
  // then uses the same mapping, so that tools which watch memory accesses see both ranks.
  std::uint64_t share;
};

struct Meeting {
  const NodeSelf& self;
  Deadline deadline;
  // All have joined the job before.
  std::chrono::nanoseconds begin = boot_time();

  [[nodiscard]] net::HelloInfo hello() const {
    return {.job = self.job, .purpose = kPurpose, .rank = self.rank, .group = 0};
  }
};

NodePeer exchange_arenas(const NodeEndpoint& endpoint, Fd socket, const Meeting& meeting) {
  const std::string& peer = endpoint.name;
  const bool is_same_process = net::peer_credentials(socket.get()).pid == ::getpid();
  ArenaMessage mine{.n_bytes = meeting.self.arena->n_bytes(), .share = 0};
  if (is_same_process) {
    mine.share =
        reinterpret_cast<std::uintptr_t>(new std::shared_ptr<const Arena>(meeting.self.arena));
  }
  net::send_fd(socket.get(), meeting.self.arena->fd(), meeting.deadline, peer);
  net::write_all(socket.get(), std::as_bytes(std::span(&mine, 1)), meeting.deadline, peer);
  Fd memory = net::receive_fd(socket.get(), meeting.deadline, peer);
  ArenaMessage theirs{};
  net::read_exact(
      socket.get(), std::as_writable_bytes(std::span(&theirs, 1)), meeting.deadline, peer);
  if (is_same_process) {
    const std::unique_ptr<std::shared_ptr<const Arena>> share(
        // NOLINTNEXTLINE(performance-no-int-to-ptr): a socket carries bytes
        reinterpret_cast<std::shared_ptr<const Arena>*>(theirs.share));
    UNISONO_CHECK(share != nullptr, "a rank of this process did not share its arena");
    return {.rank = endpoint.rank, .arena = *share, .socket = std::move(socket)};
  }
  return {.rank = endpoint.rank,
          .arena = std::make_shared<const Arena>(Arena::map(std::move(memory), theirs.n_bytes)),
          .socket = std::move(socket)};
}

Error gone(const NodeEndpoint& endpoint, const Meeting& meeting) {
  return {ErrorCode::kPeerLost,
          fmt::format("rank {}: {} is gone: it joined the job, but gave up or ended before the "
                      "ranks of this node met",
                      meeting.self.rank,
                      endpoint.name)};
}

NodePeer connect_to(const NodeEndpoint& endpoint, const Meeting& meeting) {
  Fd socket;
  net::HelloInfo theirs;
  try {
    socket = net::connect_unix_abstract(endpoint.socket, meeting.deadline);
    theirs =
        net::connect_hello(socket.get(), meeting.self.secret, meeting.hello(), meeting.deadline);
  } catch (const Error& error) {
    // Its listener is there before the roster is, so who refuses has ended.
    if (error.code() == ErrorCode::kPeerLost) {
      throw gone(endpoint, meeting);
    }
    throw Error(error.code(),
                fmt::format("rank {}: {}: {}", meeting.self.rank, endpoint.name, error.what()));
  }
  if (theirs.rank != endpoint.rank || theirs.job != meeting.self.job) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("the socket of {} answered as rank {} of job {}",
                            endpoint.name,
                            theirs.rank,
                            theirs.job));
  }
  return exchange_arenas(endpoint, std::move(socket), meeting);
}

using Endpoints = std::vector<NodeEndpoint>;

// Which of `expected` a connection proved to be; end() for a stranger.
Endpoints::iterator accept_rank(int fd, Endpoints& expected, const Meeting& meeting) {
  if (net::peer_credentials(fd).uid != ::geteuid()) {
    return expected.end();
  }
  try {
    const Deadline deadline = earlier(meeting.deadline, Deadline::after(kHelloTimeout));
    const net::HelloInfo theirs =
        net::accept_hello(fd, meeting.self.secret, meeting.hello(), deadline);
    if (theirs.job != meeting.self.job || theirs.purpose != kPurpose) {
      return expected.end();
    }
    return std::ranges::find(expected, theirs.rank, &NodeEndpoint::rank);
  } catch (const Error&) {
    return expected.end();
  }
}

// A rank listens until it has met all, or has given up.
bool has_given_up(const NodeEndpoint& endpoint) {
  try {
    return !net::connect_unix_abstract(endpoint.socket, Deadline::after(kProbeTime)).is_open();
  } catch (const Error& error) {
    return error.code() == ErrorCode::kPeerLost;
  }
}

void check_those_missing(const Endpoints& expected, const Meeting& meeting) {
  std::string names;
  for (const NodeEndpoint& endpoint : expected) {
    if ((endpoint.pid != 0 && has_ended(endpoint.pid, meeting.begin)) || has_given_up(endpoint)) {
      throw gone(endpoint, meeting);
    }
    names += (names.empty() ? "" : ", ") + endpoint.name;
  }
  if (meeting.deadline.has_passed()) {
    throw Error(ErrorCode::kTimeout,
                fmt::format("rank {}: timed out waiting for {} to connect; is it running?",
                            meeting.self.rank,
                            names));
  }
}

void accept_all(Endpoints expected, const Meeting& meeting, std::vector<NodePeer>& met) {
  const int listener = meeting.self.listener;
  while (!expected.empty()) {
    (void)net::wait_for(
        listener, POLLIN, earlier(meeting.deadline, Deadline::after(kBetweenLooks)));
    net::Accepted accepted = net::accept_connection(listener);
    if (accepted.error_number != 0) {
      throw descriptor_error(
          fmt::format("rank {}: accepting a rank of this node", meeting.self.rank),
          accepted.error_number);
    }
    if (accepted.fd.is_open()) {
      const auto endpoint = accept_rank(accepted.fd.get(), expected, meeting);
      if (endpoint != expected.end()) {
        met.push_back(exchange_arenas(*endpoint, std::move(accepted.fd), meeting));
        expected.erase(endpoint);
        continue;
      }
    }
    check_those_missing(expected, meeting);
  }
}

}  // namespace

void meet_node(const NodeSelf& self,
               const std::vector<NodeEndpoint>& peers,
               Deadline deadline,
               std::vector<NodePeer>& met) {
  const Meeting meeting{.self = self, .deadline = deadline};
  // Of each pair the higher rank connects. All ranks connect before they accept, and a connection
  // waits in the listener's backlog: but its hello needs both sides, so connect in rising order
  // while lower ranks, having connected to still lower ones, come to accept.
  Endpoints expected;
  for (const NodeEndpoint& endpoint : peers) {
    if (endpoint.rank < self.rank) {
      met.push_back(connect_to(endpoint, meeting));
    } else {
      expected.push_back(endpoint);
    }
  }
  accept_all(std::move(expected), meeting, met);
  std::ranges::sort(met, {}, &NodePeer::rank);
}

}  // namespace unisono::shm
