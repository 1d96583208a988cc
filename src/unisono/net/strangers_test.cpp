#include "unisono/net/strangers.h"

#include <chrono>
#include <optional>

#include <gtest/gtest.h>

namespace unisono::net {
namespace {

using std::chrono::milliseconds;

TEST(Strangers, TheOldestGoesWhenItsTimeIsOver) {
  Strangers strangers(2);
  const Strangers::Time start;
  strangers.add(7, start);
  EXPECT_FALSE(strangers.is_full());
  strangers.add(3, start + milliseconds(1));
  EXPECT_TRUE(strangers.is_full());
  EXPECT_EQ(strangers.overdue(start + kStrangersTime - milliseconds(1)), std::nullopt);
  EXPECT_EQ(strangers.overdue(start + kStrangersTime), 7U);
  EXPECT_TRUE(strangers.remove(7));
  EXPECT_FALSE(strangers.remove(7));
  EXPECT_EQ(strangers.size(), 1U);
  EXPECT_EQ(strangers.overdue(start + kStrangersTime), std::nullopt);
  EXPECT_EQ(strangers.overdue(start + kStrangersTime + milliseconds(1)), 3U);
  EXPECT_TRUE(strangers.remove(3));
  EXPECT_EQ(strangers.overdue(start + kStrangersTime * 2), std::nullopt);
}

TEST(Strangers, ThoseOfTheSameMomentAreKeptApart) {
  Strangers strangers(2);
  const Strangers::Time start;
  strangers.add(1, start);
  strangers.add(2, start);
  EXPECT_TRUE(strangers.remove(1));
  EXPECT_EQ(strangers.overdue(start + kStrangersTime), 2U);
}

}  // namespace
}  // namespace unisono::net
