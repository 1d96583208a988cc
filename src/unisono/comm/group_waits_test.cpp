#include "unisono/comm/group_waits.h"

#include <gtest/gtest.h>

namespace unisono::comm {
namespace {

TEST(SingleCaller, IsTheThreadThatMadeAllCalls) {
  SingleCaller caller;
  EXPECT_TRUE(caller.has_none());
  EXPECT_EQ(caller.thread(), std::nullopt);
  caller.note(7);
  caller.note(7);
  EXPECT_FALSE(caller.has_none());
  EXPECT_EQ(caller.thread(), 7U);
}

TEST(SingleCaller, IsNobodyOnceASecondThreadHasCalled) {
  SingleCaller caller;
  caller.note(7);
  caller.note(8);
  EXPECT_EQ(caller.thread(), std::nullopt);
  caller.note(7);
  EXPECT_EQ(caller.thread(), std::nullopt);
  EXPECT_FALSE(caller.has_none());
}

}  // namespace
}  // namespace unisono::comm
