#include "unisono/comm/only_caller.h"

#include <optional>

#include <gtest/gtest.h>

namespace unisono::comm {
namespace {

TEST(OnlyCaller, IsTheThreadThatMadeAllCalls) {
  OnlyCaller caller;
  EXPECT_TRUE(caller.has_none());
  EXPECT_EQ(caller.thread(), std::nullopt);
  caller.note(7);
  caller.note(7);
  EXPECT_FALSE(caller.has_none());
  EXPECT_EQ(caller.thread(), 7U);
}

TEST(OnlyCaller, IsNobodyOnceASecondThreadHasCalled) {
  OnlyCaller caller;
  caller.note(7);
  caller.note(8);
  EXPECT_EQ(caller.thread(), std::nullopt);
  caller.note(7);
  EXPECT_EQ(caller.thread(), std::nullopt);
  EXPECT_FALSE(caller.has_none());
}

}  // namespace
}  // namespace unisono::comm
