#include "unisono/net/answer_watch.h"

#include <linux/filter.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

using std::chrono::milliseconds;

Address loopback() {
  return Address::parse("127.0.0.1", 0).value();
}

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

// Looks until the watch finds the other side silent, or the deadline.
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

// From now on the kernel drops what comes for the socket.
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
  // Linux answers such questions only twice a second: the next one may come 0.9 s later.
  constexpr milliseconds kPatience{1500};
  AnswerWatch watch(kPatience);
  EXPECT_FALSE(is_silent_by(Deadline::after(2 * kPatience), watch, client.get()));
}

// Looks once a second at a connection that asks whether there is room, and gets no answer.
class Looks {
 public:
  // What the watch says when data came `since_data` ago.
  bool look_after(milliseconds pause, milliseconds since_data) {
    now_ += pause;
    since_ack_ += pause;
    tcp_info info{};
    info.tcpi_probes = 1;
    info.tcpi_last_ack_recv = static_cast<std::uint32_t>(since_ack_.count());
    info.tcpi_last_data_recv = static_cast<std::uint32_t>(since_data.count());
    return watch_.is_silent(info, now_);
  }

  // How many looks, a second apart, until the watch finds the other side silent.
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
