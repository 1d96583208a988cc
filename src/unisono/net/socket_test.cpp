#include "unisono/net/socket.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  // Bound but not listening: no other process gets the port, and connections are refused.
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

// A listener with a full queue: further packets are dropped, as behind a firewall.
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

// Polls until the watch reports a silent peer. Returns false at the deadline.
bool is_silent_by(Deadline deadline, AnswerWatch& watch, int fd) {
  while (!deadline.has_passed()) {
    if (watch.is_silent(fd)) {
      return true;
    }
    (void)::poll(nullptr, 0, 1);
  }
  return false;
}

void fill(int fd) {
  const std::vector<std::byte> bytes(1 << 20);
  while (write_some(fd, bytes).status == IoStatus::kDone) {
  }
}

// Makes the kernel drop all further packets for the socket.
void hang_up_silently(int fd) {
  sock_filter drop_all{.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog program{.len = 1, .filter = &drop_all};
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)), 0);
}

TEST(AnswerWatch, SeesThatNobodyAnswers) {
  const Fd listener = listen_tcp(loopback());
  const Fd client = connect_tcp(local_address(listener.get()), soon());
  ASSERT_TRUE(wait_for(listener.get(), POLLIN, soon()));
  const Accepted server = accept_connection(listener.get());
  hang_up_silently(server.fd.get());
  fill(client.get());
  AnswerWatch watch(milliseconds(600));
  EXPECT_TRUE(is_silent_by(soon(), watch, client.get()));
}

TEST(AnswerWatch, TakesWhoHasNoRoomForAlive) {
  const Fd listener = listen_tcp(loopback());
  const Fd client = connect_tcp(local_address(listener.get()), soon());
  fill(client.get());
  // Linux replies to such probes only twice per second: the next reply may come 0.9 s later.
  constexpr milliseconds kPatience{1500};
  AnswerWatch watch(kPatience);
  EXPECT_FALSE(is_silent_by(Deadline::after(2 * kPatience), watch, client.get()));
}

// Checks once per second a connection with unanswered probes for receive space.
class Looks {
 public:
  // Returns the verdict of the watch if the last data came `since_data` ago.
  bool look_after(milliseconds pause, milliseconds since_data) {
    now_ += pause;
    since_ack_ += pause;
    tcp_info info{};
    info.tcpi_probes = 1;
    info.tcpi_last_ack_recv = static_cast<std::uint32_t>(since_ack_.count());
    info.tcpi_last_data_recv = static_cast<std::uint32_t>(since_data.count());
    return watch_.is_silent(info, now_);
  }

  // Returns the number of checks, one per second, until the watch reports a silent peer.
  int n_until_silent() {
    int n = 1;
    while (n < 1000 && !look_after(std::chrono::seconds(1), std::chrono::hours(1))) {
      ++n;
    }
    return n;
  }

 private:
  AnswerWatch watch_{std::chrono::seconds(20)};
  AnswerWatch::Clock::time_point now_ = AnswerWatch::Clock::now();
  milliseconds since_ack_{0};
};

TEST(AnswerWatch, TakesDataForAnAnswer) {
  Looks looks;
  for (int second = 0; second < 100; ++second) {
    ASSERT_FALSE(looks.look_after(std::chrono::seconds(1), milliseconds(300))) << second;
  }
  EXPECT_EQ(looks.n_until_silent(), 20);
}

TEST(AnswerWatch, DoesNotCountTimeInWhichNobodyLooked) {
  Looks looks;
  EXPECT_EQ(looks.n_until_silent(), 21);
  EXPECT_FALSE(looks.look_after(std::chrono::seconds(60), std::chrono::hours(1)));
  EXPECT_EQ(looks.n_until_silent(), 20);
}

TEST(AnswerWatch, KnowsNothingOfOtherSockets) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
  const Fd ours(fds[0]);
  const Fd theirs(fds[1]);
  fill(ours.get());
  AnswerWatch watch(milliseconds(0));
  EXPECT_FALSE(watch.is_silent(ours.get()));
  EXPECT_FALSE(watch.is_silent(ours.get()));
}

}  // namespace
}  // namespace unisono::net
