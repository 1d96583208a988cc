#include "unisono/transport/failure.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::transport {
namespace {

TEST(Failure, TheFirstErrorCounts) {
  Failure failure;
  EXPECT_FALSE(failure.is_set());
  EXPECT_TRUE(failure.set({ErrorCode::kPeerLost, "first"}));
  EXPECT_FALSE(failure.set({ErrorCode::kTimeout, "second"}));
  EXPECT_STREQ(failure.error().what(), "first");
}

TEST(Failure, AWaitEndsWithTheErrorOrTheDeadline) {
  Failure failure;
  EXPECT_FALSE(failure.wait_until_set(Deadline::after(std::chrono::milliseconds(1))));
  std::thread other([&] { failure.set({ErrorCode::kPeerLost, "gone"}); });
  EXPECT_TRUE(failure.wait_until_set(Deadline::after(std::chrono::seconds(60))));
  other.join();
  EXPECT_TRUE(failure.wait_until_set(Deadline::after(std::chrono::seconds(0))));
}

}  // namespace
}  // namespace unisono::transport
