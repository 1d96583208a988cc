#include "unisono/net/answer_watch.h"

#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
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
  AnswerWatch watch(milliseconds(100));
  EXPECT_TRUE(is_silent_by(soon(), watch, client.get()));
}

TEST(AnswerWatch, TakesWhoHasNoRoomForAlive) {
  const Fd listener = listen_tcp(loopback());
  const Fd client = connect_tcp(local_address(listener.get()), soon());
  fill(client.get());
  // The kernel asks after 0.2, 0.6 and 1.5 s, but answers no two questions within half a second.
  constexpr milliseconds kPatience{1200};
  AnswerWatch watch(kPatience);
  EXPECT_FALSE(is_silent_by(Deadline::after(2 * kPatience), watch, client.get()));
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
