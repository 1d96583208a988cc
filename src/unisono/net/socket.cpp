#include "unisono/net/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/thread.h"
#include "unisono/net/io.h"
#include "unisono/net/ports.h"
#include "unisono/net/unix_socket.h"

namespace unisono::net {
namespace {

using std::chrono::milliseconds;

void set_option(int fd, int level, int option, int value, const char* name) {
  if (::setsockopt(fd, level, option, &value, sizeof(value)) != 0) {
    throw system_error(std::string("setsockopt ") + name, errno);
  }
}

Fd open_tcp(int family) {
  Fd fd = Fd::open_unshared(
      [&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (!fd.is_open()) {
    throw descriptor_error("opening a TCP socket", errno);
  }
  return fd;
}

std::string errno_text(int error_number) {
  return fmt::format("{} (errno {})", std::generic_category().message(error_number), error_number);
}

int pending_error(int fd) {
  int error_number = 0;
  socklen_t size = sizeof(error_number);
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error_number, &size) == 0 ? error_number : errno;
}

// Result of one attempt: a connected socket, or the reason of the failure.
struct Attempt {
  Fd fd;
  std::string reason;
  int error_number = 0;
  /// True if the deadline passed before a reply could be expected; the reason is then not
  /// informative.
  bool is_cut_short = false;
};

// Returns a likely cause of an error of connect(2), as the beginning of a reason.
std::string describe_obstacle(int error_number, milliseconds waited, bool is_cut_short) {
  if (error_number == EHOSTUNREACH) {
    return "rejected by a firewall, or no such machine? ";
  }
  if (error_number != ETIMEDOUT) {
    return "";
  }
  return is_cut_short ? fmt::format("no answer in {} ms: ", waited.count())
                      : "no answer (filtered by a firewall?): ";
}

Attempt try_connect(const Address& address, Deadline deadline) {
  // The kernel retransmits a lost SYN after 1 and 3 s; after that another address is more
  // promising.
  constexpr auto kFirstSynsTimeout = std::chrono::seconds(5);
  // A reachable host replies within this time.
  constexpr auto kAnswerTime = std::chrono::seconds(1);
  const auto start = Deadline::Clock::now();
  auto [fd, error_number] = begin_connect(address);
  bool is_cut_short = false;
  if (error_number == 0) {
    const bool is_over = interruptible_wait_for(
        fd.get(), POLLOUT, earlier(deadline, Deadline::after(kFirstSynsTimeout)));
    error_number = is_over ? end_connect(fd.get(), address) : ETIMEDOUT;
    is_cut_short = !is_over && Deadline::Clock::now() - start < kAnswerTime;
  }
  if (error_number != 0) {
    const auto waited = std::chrono::duration_cast<milliseconds>(Deadline::Clock::now() - start);
    return {.fd = Fd(),
            .reason = address.to_string() + ": " +
                      describe_obstacle(error_number, waited, is_cut_short) +
                      errno_text(error_number),
            .error_number = error_number,
            .is_cut_short = is_cut_short};
  }
  return {.fd = std::move(fd), .reason = {}};
}

Fd connect_until(const std::string& target,
                 Deadline deadline,
                 IfRefused if_refused,
                 const std::function<Attempt()>& attempt_once) {
  const auto start = Deadline::Clock::now();
  Backoff backoff;
  std::string reason;
  for (int attempts = 1;; ++attempts) {
    Attempt attempt = attempt_once();
    if (attempt.fd.is_open()) {
      return std::move(attempt.fd);
    }
    if (reason.empty() || !attempt.is_cut_short) {
      reason = attempt.reason;
    }
    const bool is_gone = if_refused == IfRefused::kGiveUp && attempt.error_number == ECONNREFUSED;
    if (!is_gone) {
      backoff.pause(deadline);
    }
    if (is_gone || deadline.has_passed()) {
      const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
      throw Error(is_gone ? ErrorCode::kPeerLost : ErrorCode::kTimeout,
                  fmt::format("could not connect to {} within {:.1f} s ({} attempts); last: {}",
                              target,
                              spent.count(),
                              attempts,
                              reason));
    }
  }
}

Attempt try_connect_host(const std::string& host, std::uint16_t port, Deadline deadline) {
  std::vector<Address> addresses;
  try {
    addresses = resolve(host, port);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInvalidArgument) {
      throw;
    }
    return {.fd = Fd(), .reason = error.what()};
  }
  Attempt attempt;
  for (const Address& address : addresses) {
    if (!attempt.reason.empty() && deadline.has_passed()) {
      break;
    }
    Attempt next = try_connect(address, deadline);
    if (next.fd.is_open()) {
      return next;
    }
    if (attempt.reason.empty() || !next.is_cut_short) {
      attempt = std::move(next);
    }
  }
  return attempt;
}

template <class Call>
Address address_of(int fd, Call call, const char* what) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (call(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    throw system_error(what, errno);
  }
  const std::optional<Address> address = Address::from_sockaddr(storage);
  if (!address) {
    throw system_error(what, EAFNOSUPPORT);
  }
  return *address;
}

Fd open_listener(const Address& address) {
  Fd fd = open_tcp(address.family());
  if (address.family() == AF_INET6) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, address.is_wildcard() ? 0 : 1, "IPV6_V6ONLY");
  }
  return fd;
}

}  // namespace

Fd listen_tcp(const Address& address, int backlog) {
  Fd fd = open_listener(address);
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR");
  if (::bind(fd.get(), address.data(), address.size()) != 0 || ::listen(fd.get(), backlog) != 0) {
    const int error_number = errno;
    std::string what = "listen on " + address.to_string();
    if (error_number == EADDRINUSE) {
      const std::string holder = find_port_holder(address.port());
      throw PortInUse(fmt::format("{}: port {} is in use{}; choose another one",
                                  what,
                                  address.port(),
                                  holder.empty() ? "" : " by " + holder));
    }
    throw system_error(what, error_number);
  }
  return fd;
}

Address any_of_both_families(std::uint16_t port) {
  const Fd probe(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return Address::any(probe.is_open() ? AF_INET6 : AF_INET, port);
}

Fd listen_tcp(const Address& address, const PortRange& ports, int backlog) {
  const auto try_listen = [&](int fd) {
    if (::listen(fd, backlog) == 0) {
      return true;
    }
    if (errno != EADDRINUSE) {
      throw system_error("listen on " + local_address(fd).to_string(), errno);
    }
    return false;
  };
  return bind_in_range(address, ports, [&] { return open_listener(address); }, try_listen);
}

Fd connect_tcp(const Address& address, Deadline deadline, IfRefused if_refused) {
  return connect_until(
      address.to_string(), deadline, if_refused, [&] { return try_connect(address, deadline); });
}

Fd connect_tcp(const std::string& host,
               std::uint16_t port,
               Deadline deadline,
               IfRefused if_refused) {
  return connect_until(fmt::format("{} port {}", host, port), deadline, if_refused, [&] {
    return try_connect_host(host, port, deadline);
  });
}

Connecting begin_connect(const Address& address) {
  Connecting connecting{.fd = open_tcp(address.family())};
  if (::connect(connecting.fd.get(), address.data(), address.size()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    connecting.error_number = errno;
  }
  return connecting;
}

int end_connect(int fd, const Address& address) {
  if (const int error_number = pending_error(fd); error_number != 0) {
    return error_number;
  }
  // On loopback a socket can connect to itself if the port is in the ephemeral range.
  if (local_address(fd) == address) {
    return ECONNREFUSED;
  }
  set_no_delay(fd);
  return 0;
}

int find_obstacle(const Address& address, Deadline deadline) {
  return try_connect(address, deadline).error_number;
}

bool is_refused(const Address& address, Deadline deadline) {
  return find_obstacle(address, deadline) == ECONNREFUSED;
}

Accepted accept_connection(int listener) noexcept {
  Fd fd = Fd::open_unshared(
      [&] { return ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
  if (fd.is_open()) {
    return {.fd = std::move(fd)};
  }
  switch (errno) {
    // These errors belong to a connection that ended in the queue, not to the listener.
    case EAGAIN:
    case EINTR:
    case ECONNABORTED:
    case EPROTO:
    case EPERM:
      return {};
    default:
      return {.fd = Fd(), .error_number = errno};
  }
}

void set_no_delay(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
}

void set_idle_timeout(int fd, std::chrono::seconds timeout) {
  constexpr int kProbes = 3;
  const int seconds = std::max(static_cast<int>(timeout.count()), kProbes + 1);
  const int interval = seconds / (kProbes + 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, interval, "TCP_KEEPIDLE");
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval, "TCP_KEEPINTVL");
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes, "TCP_KEEPCNT");
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 0, "TCP_USER_TIMEOUT");
}

void set_liveness_timeout(int fd, std::chrono::seconds timeout) {
  set_idle_timeout(fd, timeout);
  const auto n_ms = static_cast<int>(std::chrono::milliseconds(timeout).count());
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, n_ms, "TCP_USER_TIMEOUT");
}

Address local_address(int fd) {
  return address_of(fd, ::getsockname, "read a socket's own address");
}

Address peer_address(int fd) {
  return address_of(fd, ::getpeername, "read the address of a socket's other side");
}

std::string describe_peer(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return "a peer that is gone";
  }
  if (const std::optional<Address> address = Address::from_sockaddr(storage)) {
    return address->to_string();
  }
  return fmt::format("process {}", peer_credentials(fd).pid);
}

namespace {

constexpr int kLooks = 20;

// A longer interval between two checks does not belong to a continuous wait.
constexpr int kMostIntervals = 3;

// Returns true if sent data or a window probe is unacknowledged. A peer without receive buffer
// acknowledges each retransmission.
bool is_asked_for_answer(const tcp_info& info) {
  const bool is_unanswered =
      info.tcpi_unacked > 0 && info.tcpi_last_data_sent < info.tcpi_last_ack_recv;
  return is_unanswered || info.tcpi_probes > 0;
}

std::chrono::milliseconds since_answer(const tcp_info& info) {
  // Received data shows that the peer is alive, but not that it has received the sent data.
  const bool is_data_answer = info.tcpi_probes > 0 && info.tcpi_unacked == 0;
  return std::chrono::milliseconds(is_data_answer
                                       ? std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv)
                                       : info.tcpi_last_ack_recv);
}

}  // namespace

std::chrono::milliseconds AnswerWatch::interval() const {
  return patience_ / kLooks;
}

bool AnswerWatch::is_silent(int fd) noexcept {
  if (!next_look_.has_passed()) {
    return false;
  }
  next_look_ = Deadline::after(interval());
  tcp_info info{};
  socklen_t size = sizeof(info);
  // Without TCP_INFO (not a TCP socket) the connection counts as idle.
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) {
    info = {};
  }
  return is_silent(info, Clock::now());
}

bool AnswerWatch::is_silent(const tcp_info& info, Clock::time_point now) noexcept {
  const bool has_paused = now - std::exchange(last_look_, now) > kMostIntervals * interval();
  if (!is_asked_for_answer(info)) {
    unanswered_since_.reset();
    return false;
  }
  if (!unanswered_since_ || has_paused || now - since_answer(info) > *unanswered_since_) {
    unanswered_since_ = now;
  }
  return now - *unanswered_since_ >= patience_;
}

}  // namespace unisono::net
