#include "unisono/net/event_loop.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/net/io.h"

namespace unisono::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Fd ready_eventfd() {
  return Fd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
}

// Runs the loop until `is_done` returns true. Returns false after a timeout.
bool run_until(EventLoop& loop, const std::function<bool()>& is_done) {
  const Deadline deadline = Deadline::after(seconds(20));
  while (!is_done() && !deadline.has_passed()) {
    loop.run_once(deadline);
  }
  return is_done();
}

TEST(EventLoop, CallsBackForReadyDescriptorsUntilTheyAreRemoved) {
  EventLoop loop;
  const Fd fd = ready_eventfd();
  int n_calls = 0;
  std::uint32_t seen = 0;
  loop.add(fd.get(), EPOLLIN, [&](std::uint32_t events) {
    ++n_calls;
    seen = events;
  });
  loop.run_once(Deadline::never());
  loop.run_once(Deadline::never());
  EXPECT_EQ(n_calls, 2);
  EXPECT_EQ(seen, static_cast<std::uint32_t>(EPOLLIN));
  loop.modify(fd.get(), EPOLLOUT);
  loop.run_once(Deadline::never());
  EXPECT_EQ(seen, static_cast<std::uint32_t>(EPOLLOUT));
  loop.remove(fd.get());
  loop.run_once(Deadline::after(milliseconds(0)));
  EXPECT_EQ(n_calls, 3);
}

TEST(EventLoop, ACallbackMayRemoveItselfAndOthersOfTheSameRound) {
  EventLoop loop;
  std::vector<Fd> fds;
  int n_calls = 0;
  for (int i = 0; i < 4; ++i) {
    fds.push_back(ready_eventfd());
  }
  for (const Fd& fd : fds) {
    loop.add(fd.get(), EPOLLIN, [&](std::uint32_t) {
      ++n_calls;
      for (Fd& each : fds) {
        loop.remove(each.get());
        each.reset();
      }
      // New descriptors reuse the numbers of the closed descriptors, and must not get their events.
      for (Fd& each : fds) {
        each = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        loop.add(each.get(), EPOLLIN, [&](std::uint32_t) { n_calls += 100; });
      }
    });
  }
  loop.run_once(Deadline::never());
  loop.run_once(Deadline::after(milliseconds(0)));
  EXPECT_EQ(n_calls, 1);
}

TEST(EventLoop, TimersRunInOrderOnceAndNotBeforeTheirTime) {
  EventLoop loop;
  std::vector<int> order;
  const Deadline late = Deadline::after(milliseconds(20));
  loop.add_timer(late, [&] {
    EXPECT_TRUE(late.has_passed());
    order.push_back(2);
  });
  loop.add_timer(Deadline::after(milliseconds(1)), [&] { order.push_back(1); });
  const EventLoop::TimerId cancelled =
      loop.add_timer(Deadline::after(milliseconds(2)), [&] { order.push_back(3); });
  loop.cancel_timer(cancelled);
  loop.cancel_timer(cancelled);
  EXPECT_TRUE(run_until(loop, [&] { return order.size() == 2; }));
  loop.run_once(Deadline::after(milliseconds(0)));
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2));
}

TEST(EventLoop, ATimerMayCancelAnotherAndAddItselfAgain) {
  EventLoop loop;
  const Deadline now = Deadline::after(milliseconds(0));
  int n_ticks = 0;
  EventLoop::TimerId victim = 0;
  std::function<void()> tick = [&] {
    loop.cancel_timer(victim);
    if (++n_ticks < 3) {
      loop.add_timer(Deadline::after(milliseconds(1)), tick);
    }
  };
  loop.add_timer(now, tick);
  victim = loop.add_timer(now, [] { ADD_FAILURE() << "a cancelled timer ran"; });
  EXPECT_TRUE(run_until(loop, [&] { return n_ticks == 3; }));
}

TEST(EventLoop, RunOnceReturnsAtItsDeadline) {
  EventLoop loop;
  const Deadline deadline = Deadline::after(milliseconds(5));
  loop.run_once(deadline);
  EXPECT_TRUE(deadline.has_passed());
}

TEST(EventLoop, PostsOfOtherThreadsRunHereInOrder) {
  EventLoop loop;
  std::vector<int> order;
  std::thread poster([&] {
    for (int i = 0; i < 100; ++i) {
      loop.post([&order, i] { order.push_back(i); });
    }
    loop.stop();
  });
  loop.run();
  poster.join();
  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(EventLoop, StopBeforeRunAndRunAgain) {
  EventLoop loop;
  loop.stop();
  loop.run();
  loop.post([&] { loop.stop(); });
  loop.run();
}

TEST(EventLoop, WakeEndsAWait) {
  EventLoop loop;
  std::thread waker([&] { loop.wake(); });
  loop.run_once(Deadline::never());
  waker.join();
}

TEST(EventLoop, MisuseIsAnInternalError) {
  EventLoop loop;
  const Fd fd = ready_eventfd();
  EXPECT_THROW(loop.remove(fd.get()), Error);
  EXPECT_THROW(loop.modify(fd.get(), EPOLLIN), Error);
  loop.add(fd.get(), EPOLLIN, [](std::uint32_t) {});
  EXPECT_THROW(loop.add(fd.get(), EPOLLIN, [](std::uint32_t) {}), Error);
  EXPECT_THROW(loop.add(-1, EPOLLIN, [](std::uint32_t) {}), Error);
}

bool is_awake(const Wakeup& wakeup) {
  return wait_for(wakeup.fd(), POLLIN, Deadline::after(std::chrono::seconds(0)));
}

TEST(Wakeup, IsReadableUntilItIsCleared) {
  const Wakeup wakeup;
  EXPECT_FALSE(is_awake(wakeup));
  wakeup.wake();
  wakeup.wake();
  EXPECT_TRUE(is_awake(wakeup));
  EXPECT_TRUE(is_awake(wakeup));
  wakeup.clear();
  EXPECT_FALSE(is_awake(wakeup));
  wakeup.clear();
  wakeup.wake();
  EXPECT_TRUE(is_awake(wakeup));
}

TEST(Wakeup, EndsAnotherThreadsSleep) {
  const Wakeup wakeup;
  const std::jthread other([&] { wakeup.wake(); });
  EXPECT_TRUE(wait_for(wakeup.fd(), POLLIN, Deadline::after(std::chrono::seconds(20))));
}

}  // namespace
}  // namespace unisono::net
