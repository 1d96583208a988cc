#include "unisono/net/wakeup.h"

#include <poll.h>

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/net/io.h"

namespace unisono::net {
namespace {

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
