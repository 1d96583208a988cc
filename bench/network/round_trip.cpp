// round_trip [spin]: prints the round-trip time of a message of 8 bytes between two processes over
// a plain tcp socket on loopback, as a line of JSON. Receivers sleep in poll(2) or spin.
#include <fmt/core.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"

namespace {

using unisono::Deadline;
using unisono::Fd;

using Message = std::array<char, 8>;

constexpr std::size_t kWarmUps = 2000;
constexpr std::size_t kRoundTrips = 20000;
constexpr std::chrono::seconds kTimeout{20};

void wait_for_message(int fd, bool spins) {
  if (spins) {
    ::sched_yield();
    return;
  }
  pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, Deadline::after(kTimeout).poll_timeout_ms()) == 0) {
    throw unisono::Error(unisono::ErrorCode::kTimeout, "no message came");
  }
}

// Returns false if the other process has closed the connection.
bool receive(int fd, Message& message, bool spins) {
  std::size_t n_received = 0;
  while (n_received < message.size()) {
    const ssize_t n_bytes =
        ::recv(fd, message.data() + n_received, message.size() - n_received, MSG_DONTWAIT);
    if (n_bytes == 0) {
      return false;
    }
    if (n_bytes > 0) {
      n_received += static_cast<std::size_t>(n_bytes);
    } else if (errno == EAGAIN) {
      wait_for_message(fd, spins);
    } else if (errno != EINTR) {
      throw unisono::system_error("receiving a message", errno);
    }
  }
  return true;
}

// Messages have few bytes, and only one message is in transit at a time, so the socket accepts each
// message as a whole.
void send(int fd, const Message& message) {
  if (::send(fd, message.data(), message.size(), MSG_NOSIGNAL) < 0) {
    throw unisono::system_error("sending a message", errno);
  }
}

void echo(const unisono::net::Address& address, bool spins) {
  const Fd socket = unisono::net::connect_tcp(address, Deadline::after(kTimeout));
  Message message{};
  while (receive(socket.get(), message, spins)) {
    send(socket.get(), message);
  }
}

Fd accept_one(int listener) {
  wait_for_message(listener, false);
  unisono::net::Accepted accepted = unisono::net::accept_connection(listener);
  if (accepted.error_number != 0) {
    throw unisono::system_error("accepting a connection", accepted.error_number);
  }
  unisono::net::set_no_delay(accepted.fd.get());
  return std::move(accepted.fd);
}

double median_round_trip_us(int fd, bool spins) {
  std::vector<double> times;
  Message message{};
  for (std::size_t round = 0; round < kWarmUps + kRoundTrips; ++round) {
    const auto start = std::chrono::steady_clock::now();
    send(fd, message);
    if (!receive(fd, message, spins)) {
      throw unisono::Error(unisono::ErrorCode::kPeerLost, "the other process hung up");
    }
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    if (round >= kWarmUps) {
      times.push_back(time.count());
    }
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

int run(bool spins) {
  const Fd listener = unisono::net::listen_tcp(*unisono::net::Address::parse("127.0.0.1", 0));
  const unisono::net::Address address = unisono::net::local_address(listener.get());
  const pid_t child = ::fork();
  if (child < 0) {
    throw unisono::system_error("forking", errno);
  }
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    echo(address, spins);
    return 0;
  }
  Fd socket = accept_one(listener.get());
  fmt::print("{{\"median_us\":{:.3f}}}\n", median_round_trip_us(socket.get(), spins));
  socket = Fd();
  return ::waitpid(child, nullptr, 0) == child ? 0 : 1;
}

}  // namespace

int main(int n_arguments, char** arguments) {
  try {
    return run(n_arguments > 1 && std::string_view(arguments[1]) == "spin");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "round_trip: %s\n", error.what());
    return 1;
  }
}
