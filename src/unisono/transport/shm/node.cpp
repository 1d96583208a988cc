#include "unisono/transport/shm/node.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/frame.h"

namespace unisono::shm {
namespace {

constexpr const char* kPurpose = "node";

// A stranger that connects and sends no data delays the ranks queued behind by at most this long.
constexpr std::chrono::seconds kHelloTimeout{5};

// Time limit of a probe for a listener. Reached only if the queue of the listener is full.
constexpr std::chrono::milliseconds kProbeTime{1};

// Interval of the liveness checks of awaited ranks.
constexpr std::chrono::milliseconds kBetweenLooks{500};

// A rank waits this much longer than its deadline for the error of the lowest rank, which names the
// missing ranks.
constexpr std::chrono::seconds kLastWord{1};

// More than the address space of a process.
constexpr std::int64_t kMostArenaBytes = std::int64_t{1} << 47;

// Synchronization message of a meeting. An abort frame may be sent instead.
constexpr std::byte kReady{1};

struct Meeting {
  const NodeSelf& self;
  Deadline deadline;
  // All ranks of the node were running at this time; used by has_ended() to detect reused pids.
  std::chrono::nanoseconds begin = boot_time();

  [[nodiscard]] net::HelloInfo hello() const {
    return {.job = self.job, .purpose = kPurpose, .rank = self.rank, .group = 0};
  }
};

Error gone(const NodeEndpoint& endpoint, const Meeting& meeting) {
  return {ErrorCode::kPeerLost,
          fmt::format("rank {}: {} is gone: it joined the job, but failed or ended before the "
                      "ranks of this node met",
                      meeting.self.rank,
                      endpoint.name)};
}

// Reads the rest of an abort frame after the first byte. Returns the error of the peer's meeting.
Error read_reason(int fd, std::byte first, const NodeEndpoint& endpoint, Deadline deadline) {
  transport::FrameBytes bytes{first};
  net::read_exact(fd, std::span(bytes).subspan(1), deadline, endpoint.name);
  const std::optional<transport::Frame> frame = transport::decode(bytes);
  if (!frame || frame->kind != transport::FrameKind::kAbort) {
    return {ErrorCode::kCorruptData, endpoint.name + ": unexpected bytes in the node's meeting"};
  }
  std::vector<std::byte> text(frame->n_bytes);
  net::read_exact(fd, text, deadline, endpoint.name);
  return transport::relayed(endpoint.name, transport::decode_abort(*frame, text));
}

// Performs a step with a peer. A lost connection means that the peer's meeting has ended.
template <class Step>
void step_with(const NodeEndpoint& endpoint, const Meeting& meeting, Step step) {
  try {
    step();
  } catch (const Error& error) {
    throw error.code() == ErrorCode::kPeerLost ? gone(endpoint, meeting) : Error(error);
  }
}

// Waits until the peer is ready for the next step. Throws the error of the peer's meeting if that
// has failed.
void expect_ready(int fd, const NodeEndpoint& endpoint, const Meeting& meeting, Deadline deadline) {
  while (!net::wait_for(fd, POLLIN, earlier(deadline, Deadline::after(kBetweenLooks)))) {
    if (endpoint.pid != 0 && has_ended(endpoint.pid, meeting.begin)) {
      throw gone(endpoint, meeting);
    }
    if (deadline.has_passed()) {
      throw Error(ErrorCode::kTimeout,
                  fmt::format("rank {}: timed out waiting for {}, with which it meets the ranks of "
                              "this node; is it running?",
                              meeting.self.rank,
                              endpoint.name));
    }
  }
  std::array<std::byte, 1> word{};
  std::optional<Error> reason;
  step_with(endpoint, meeting, [&] {
    net::read_exact(fd, word, deadline, endpoint.name);
    if (word[0] != kReady) {
      reason = read_reason(fd, word[0], endpoint, Deadline::after(kLastWord));
    }
  });
  if (reason) {
    throw Error(reason->code(), fmt::format("rank {}: {}", meeting.self.rank, reason->what()));
  }
}

void say_ready(int fd, const NodeEndpoint& endpoint, const Meeting& meeting) {
  step_with(endpoint, meeting, [&] {
    net::write_all(fd, std::span(&kReady, 1), meeting.deadline, endpoint.name);
  });
}

Fd connect_to(const NodeEndpoint& endpoint, const Meeting& meeting) {
  Fd socket;
  net::HelloInfo theirs;
  try {
    socket = net::connect_unix_abstract(endpoint.socket, meeting.deadline);
    theirs =
        net::connect_hello(socket.get(), meeting.self.secret, meeting.hello(), meeting.deadline);
  } catch (const Error& error) {
    // Every rank listens before the roster is published, so a rank that refuses a connection has
    // ended.
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
  return socket;
}

// The meeting for a rank that is not the lowest.
NodeMemory join(const NodeEndpoint& lowest,
                std::size_t n_ranks,
                const Meeting& meeting,
                std::vector<NodePeer>& met) {
  met.push_back({.rank = lowest.rank, .socket = connect_to(lowest, meeting)});
  const int fd = met.back().socket.get();
  net::write_all(
      fd, std::as_bytes(std::span(&meeting.self.arena_bytes, 1)), meeting.deadline, lowest.name);
  const Deadline last_word = meeting.deadline.is_never()
                                 ? meeting.deadline
                                 : Deadline::at(meeting.deadline.time() + kLastWord);
  expect_ready(fd, lowest, meeting, last_word);
  NodeMemory memory =
      NodeMemory::map(net::receive_fd(fd, Deadline::after(kHelloTimeout), lowest.name), n_ranks);
  say_ready(fd, lowest, meeting);
  expect_ready(fd, lowest, meeting, last_word);
  return memory;
}

using Endpoints = std::vector<NodeEndpoint>;

// Returns the entry of `expected` for the rank that the connection has authenticated; end() for a
// stranger.
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

// A rank listens until its meeting is complete or has failed.
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

// A rank that has connected to this rank, the lowest.
struct Guest {
  NodeEndpoint endpoint;
  std::int64_t arena_bytes;
};

std::int64_t read_arena_bytes(int fd, const NodeEndpoint& endpoint, const Meeting& meeting) {
  std::int64_t n_bytes = 0;
  step_with(endpoint, meeting, [&] {
    net::read_exact(fd,
                    std::as_writable_bytes(std::span(&n_bytes, 1)),
                    earlier(meeting.deadline, Deadline::after(kHelloTimeout)),
                    endpoint.name);
  });
  return n_bytes;
}

// Returns the ranks in the order of arrival, and appends the connections to `met`.
std::vector<Guest> accept_all(Endpoints expected,
                              const Meeting& meeting,
                              std::vector<NodePeer>& met) {
  std::vector<Guest> guests;
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
        const int fd = accepted.fd.get();
        met.push_back({.rank = endpoint->rank, .socket = std::move(accepted.fd)});
        guests.push_back(
            {.endpoint = *endpoint, .arena_bytes = read_arena_bytes(fd, *endpoint, meeting)});
        expected.erase(endpoint);
        continue;
      }
    }
    check_those_missing(expected, meeting);
  }
  return guests;
}

// The meeting for the lowest rank. Its sends do not wait for a reader: the socket buffers have room
// for the data.
NodeMemory gather(const Endpoints& others, const Meeting& meeting, std::vector<NodePeer>& met) {
  const std::vector<Guest> guests = accept_all(others, meeting, met);
  std::vector<std::int64_t> arena_bytes = {meeting.self.arena_bytes};
  for (const NodeEndpoint& endpoint : others) {
    const std::int64_t n_bytes = std::ranges::find(guests, endpoint.rank, [](const Guest& guest) {
                                   return guest.endpoint.rank;
                                 })->arena_bytes;
    if (n_bytes <= 0 || n_bytes > kMostArenaBytes) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "{} wants an arena of {} bytes (UNISONO_ARENA_BYTES)", endpoint.name, n_bytes));
    }
    arena_bytes.push_back(n_bytes);
  }
  NodeMemory memory = NodeMemory::create(arena_bytes);
  for (std::size_t i = 0; i < guests.size(); ++i) {
    const int fd = met[i].socket.get();
    say_ready(fd, guests[i].endpoint, meeting);
    step_with(guests[i].endpoint, meeting, [&] {
      net::send_fd(fd, memory.fd(), meeting.deadline, guests[i].endpoint.name);
    });
  }
  for (std::size_t i = 0; i < guests.size(); ++i) {
    expect_ready(met[i].socket.get(), guests[i].endpoint, meeting, meeting.deadline);
  }
  for (std::size_t i = 0; i < guests.size(); ++i) {
    say_ready(met[i].socket.get(), guests[i].endpoint, meeting);
  }
  return memory;
}

}  // namespace

NodeMemory meet_node(const NodeSelf& self,
                     const std::vector<NodeEndpoint>& peers,
                     Deadline deadline,
                     std::vector<NodePeer>& met) {
  const Meeting meeting{.self = self, .deadline = deadline};
  if (!peers.empty() && peers.front().rank < self.rank) {
    return join(peers.front(), peers.size() + 1, meeting, met);
  }
  return gather(peers, meeting, met);
}

}  // namespace unisono::shm
