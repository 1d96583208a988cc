// Strangers that connect to a job's ports do no harm.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/fd.h"

#include "processes/job.h"

namespace unisono::test {
namespace {

using ::testing::HasSubstr;

Fd connect_to(std::uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0)
      << std::strerror(errno);
  return socket;
}

// Connects as a port scanner does: silently, with an immediate close, and with bytes that are
// invalid or too many.
std::vector<Fd> visit(std::uint16_t port) {
  const std::vector<std::string> greetings{"GET / HTTP/1.0\r\n\r\n",
                                           std::string(4096, '\0'),
                                           std::string(100'000, '\xff'),
                                           "\x16\x03\x01\x02",
                                           std::string("\x07", 1)};
  std::vector<Fd> open;
  (void)connect_to(port);
  open.push_back(connect_to(port));
  for (const std::string& greeting : greetings) {
    Fd socket = connect_to(port);
    // The peer may have closed the connection during the send.
    (void)::send(socket.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    open.push_back(std::move(socket));
  }
  return open;
}

// Waits until the peer closes the connection.
bool is_turned_away(const Fd& socket) {
  pollfd closed{.fd = socket.get(), .events = POLLIN, .revents = 0};
  constexpr int kTimeoutMs = 40'000;  // Twice the limit of a silent connection.
  std::vector<char> buffer(4096);
  while (::poll(&closed, 1, kTimeoutMs) == 1) {
    if (::recv(socket.get(), buffer.data(), buffer.size(), 0) <= 0) {
      return true;
    }
  }
  return false;
}

TEST(UnauthenticatedConnections, AtTheDataPortAndTheStoresDoNoHarm) {
  Job job({.world_size = 3, .mode = {"stream", "private"}, .nodes = {"a", "a", "b"}});
  job.start_all();
  std::vector<Fd> connections;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    if (!job.processes().wait_for_output(rank, "streaming\n")) {
      return;
    }
  }
  for (Fd& connection : visit(job.port().number())) {
    connections.push_back(std::move(connection));
  }
  for (std::size_t rank = 0; rank < 3; ++rank) {
    const std::string text = job.processes().output(rank);
    const int port = std::stoi(text.substr(text.find("data port ") + 10));
    for (Fd& connection : visit(static_cast<std::uint16_t>(port))) {
      connections.push_back(std::move(connection));
    }
  }
  // Silent connections are closed in time, too.
  for (std::size_t i = 0; i < connections.size(); ++i) {
    EXPECT_TRUE(is_turned_away(connections[i])) << "connection " << i;
  }
  job.processes().close_stdin(0);
  for (const ProcessResult& result : job.processes().finish()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("done\n"));
  }
}

TEST(UnauthenticatedConnections, AtTheStoresPortDoNotBreakTheMeeting) {
  Job job({.world_size = 2, .nodes = {"a", "b"}, .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
  job.start(0);
  if (!job.processes().wait_for_output(0, "for rank 1 (1 of 2 joined)")) {
    return;
  }
  const std::vector<Fd> connections = visit(job.port().number());
  job.start(1);
  for (const ProcessResult& result : job.processes().finish()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("all_reduce(ones)=2\n"));
  }
}

}  // namespace
}  // namespace unisono::test
