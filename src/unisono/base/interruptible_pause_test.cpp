#include "unisono/base/interruptible_pause.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"

namespace unisono {
namespace {

TEST(InterruptiblePause, LastsUntilItsDeadline) {
  InterruptiblePause pause;
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(10));
  EXPECT_TRUE(pause.wait_until(deadline));
  EXPECT_TRUE(deadline.has_passed());
}

TEST(InterruptiblePause, EndsForGoodWhenAnotherThreadSaysSo) {
  InterruptiblePause pause;
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  std::thread other([&] { pause.end(); });
  EXPECT_FALSE(pause.wait_until(deadline));
  other.join();
  EXPECT_FALSE(pause.wait_until(deadline));
  EXPECT_FALSE(deadline.has_passed());
}

}  // namespace
}  // namespace unisono
