#include "unisono/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"

#include "support/throws_error.h"

namespace unisono::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

Address loopback(std::uint16_t port = 0) {
  return *Address::parse("127.0.0.1", port);
}

Deadline soon() {
  return Deadline::after(seconds(20));
}

int int_option(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  EXPECT_EQ(::getsockopt(fd, level, option, &value, &size), 0);
  return value;
}

Fd accept_one(const Fd& listener) {
  EXPECT_TRUE(wait_for(listener.get(), POLLIN, soon()));
  return accept_connection(listener.get()).fd;
}

TEST(Tcp, BothSidesKnowTheAddresses) {
  for (const char* ip : {"127.0.0.1", "::1"}) {
    const Fd listener = listen_tcp(*Address::parse(ip, 0));
    const Address address = local_address(listener.get());
    EXPECT_NE(address.port(), 0);
    const Fd client = connect_tcp(address, soon());
    const Fd server = accept_one(listener);
    ASSERT_TRUE(server.is_open());
    EXPECT_EQ(peer_address(client.get()), address);
    EXPECT_EQ(peer_address(server.get()), local_address(client.get()));
    EXPECT_EQ(describe_peer(client.get()), address.to_string());
  }
}

TEST(Tcp, SocketsAreNonblockingCloseOnExecAndWithoutDelay) {
  const Fd listener = listen_tcp(loopback());
  const Fd client = connect_tcp(local_address(listener.get()), soon());
  const Fd server = accept_one(listener);
  for (const int fd : {listener.get(), client.get(), server.get()}) {
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_NE(int_option(client.get(), IPPROTO_TCP, TCP_NODELAY), 0);
}

TEST(Tcp, LivenessTimeoutReachesTheKernel) {
  const Fd listener = listen_tcp(loopback());
  const Fd client = connect_tcp(local_address(listener.get()), soon());
  set_liveness_timeout(client.get(), seconds(20));
  EXPECT_EQ(int_option(client.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 20'000);
  EXPECT_EQ(int_option(client.get(), IPPROTO_TCP, TCP_KEEPIDLE), 5);
  EXPECT_NE(int_option(client.get(), SOL_SOCKET, SO_KEEPALIVE), 0);
  set_idle_timeout(client.get(), seconds(40));
  EXPECT_EQ(int_option(client.get(), IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_EQ(int_option(client.get(), IPPROTO_TCP, TCP_KEEPIDLE), 10);
}

TEST(Tcp, WildcardV6ListenerTakesV4) {
  const Fd listener = listen_tcp(*Address::parse("::", 0));
  const Fd client = connect_tcp(loopback(local_address(listener.get()).port()), soon());
  EXPECT_TRUE(accept_one(listener).is_open());
}

TEST(Tcp, PortInUseNamesItsHolder) {
  const Fd listener = listen_tcp(loopback());
  const Address address = local_address(listener.get());
  try {
    const Fd second = listen_tcp(address);
    FAIL() << "a port can't be taken twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(), HasSubstr("listen on " + address.to_string()));
    EXPECT_THAT(error.what(), HasSubstr("in use by process " + std::to_string(::getpid()) + " ("));
    EXPECT_THAT(error.what(), HasSubstr("net_test"));
  }
}

TEST(Tcp, AnAddressOfAnotherMachineCannotBeListenedOn) {
  try {
    const Fd fd = listen_tcp(*Address::parse("192.0.2.1", 0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("listen on 192.0.2.1:0: Cannot assign"));
  }
}

TEST(Tcp, ConnectWaitsForAServerThatStartsLater) {
  // Bound but not listening: the port stays ours, and connections are refused.
  Fd reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address any = loopback();
  ASSERT_EQ(::bind(reserved.get(), any.data(), any.size()), 0);
  const Address address = local_address(reserved.get());
  EXPECT_THROW((void)connect_tcp(address, Deadline::after(milliseconds(1))), Error);

  Fd client;
  std::thread connecting([&] { client = connect_tcp(address, soon()); });
  ASSERT_EQ(::listen(reserved.get(), 1), 0);
  connecting.join();
  EXPECT_TRUE(client.is_open());
}

TEST(Tcp, ConnectThatNobodyAnswersNamesAddressReasonAndTime) {
  Fd reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address any = loopback();
  ASSERT_EQ(::bind(reserved.get(), any.data(), any.size()), 0);
  const Address address = local_address(reserved.get());
  try {
    (void)connect_tcp("127.0.0.1", address.port(), Deadline::after(milliseconds(30)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("could not connect to 127.0.0.1 port "));
    EXPECT_THAT(error.what(), HasSubstr(address.to_string() + ": Connection refused (errno 111)"));
    EXPECT_THAT(error.what(), HasSubstr("within 0."));
  }
}

// A listener that takes no more: what is sent to it is lost, as behind a firewall.
class Unanswered {
 public:
  Unanswered() : listener_(listen_tcp(loopback(), 0)) {
    while (clients_.empty() || wait_for(clients_.back().get(), POLLOUT, in_a_moment())) {
      clients_.push_back(begin_connect(address()).fd);
    }
  }

  [[nodiscard]] Address address() const { return local_address(listener_.get()); }

 private:
  static Deadline in_a_moment() { return Deadline::after(milliseconds(100)); }

  Fd listener_;
  std::vector<Fd> clients_;
};

std::string reason_at(const Address& address, milliseconds timeout) {
  try {
    (void)connect_tcp(address.ip(), address.port(), Deadline::after(timeout));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    return error.what();
  }
  return "connected";
}

TEST(Tcp, OnlyWhatWasWaitedForIsSaidToBeFiltered) {
  const Unanswered port;
  const std::string where = port.address().to_string();
  EXPECT_THAT(reason_at(port.address(), milliseconds(1200)),
              HasSubstr(where + ": no answer (filtered by a firewall?): Connection timed out"));
  const std::string early = reason_at(port.address(), milliseconds(20));
  EXPECT_THAT(early, ::testing::ContainsRegex(where + ": no answer in [0-9]+ ms: "));
  EXPECT_THAT(early, Not(HasSubstr("firewall")));
  EXPECT_EQ(find_obstacle(port.address(), Deadline::after(milliseconds(1))), ETIMEDOUT);
}

TEST(Tcp, ConnectToWhoIsGoneEndsAtTheFirstRefusal) {
  Fd reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address any = loopback();
  ASSERT_EQ(::bind(reserved.get(), any.data(), any.size()), 0);
  const Address address = local_address(reserved.get());
  for (const auto& connect : std::vector<std::function<Fd()>>{
           [&] { return connect_tcp(address, soon(), IfRefused::kGiveUp); },
           [&] { return connect_tcp("127.0.0.1", address.port(), soon(), IfRefused::kGiveUp); }}) {
    try {
      (void)connect();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
      EXPECT_THAT(error.what(), HasSubstr("(1 attempts); last: " + address.to_string()));
    }
  }
}

TEST(Tcp, ConnectToAnUnknownHostTimesOutNamingIt) {
  try {
    (void)connect_tcp("no-such-host.invalid", 29500, Deadline::after(milliseconds(1)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("no-such-host.invalid"));
  }
}

TEST(Tcp, AcceptWithoutAConnectionReturnsNothing) {
  const Fd listener = listen_tcp(loopback());
  const Accepted accepted = accept_connection(listener.get());
  EXPECT_FALSE(accepted.fd.is_open());
  EXPECT_EQ(accepted.error_number, 0);
  EXPECT_EQ(accept_connection(-1).error_number, EBADF);
}

TEST(ConnectByName, IsNotTriedAgainWhereNoMachineCanHaveTheName) {
  const auto start = Deadline::Clock::now();
  EXPECT_THAT(
      [] { (void)connect_tcp("::1:29574", 29500, Deadline::after(seconds(20))); },
      test::throws_error(ErrorCode::kInvalidArgument, "\"::1:29574\"", "29574 as the port"));
  EXPECT_LT(Deadline::Clock::now() - start, seconds(5));
}

}  // namespace
}  // namespace unisono::net
