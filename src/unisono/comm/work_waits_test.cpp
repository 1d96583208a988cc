#include "unisono/comm/work_waits.h"

#include <optional>

#include <gtest/gtest.h>

#include "unisono/comm/rank_wait.h"

namespace unisono::comm {
namespace {

constexpr WaitId kOperation{.group = 2, .sequence = 5};
constexpr WaitId kReceive{.group = 2, .is_message = true, .sequence = 5};

TEST(WorkWaits, KnowWhatAThreadWaitsForUntilItWaitsNoMore) {
  WorkWaits waits;
  waits.begin(7, kOperation);
  EXPECT_EQ(waits.find(7), kOperation);
  EXPECT_EQ(waits.find(8), std::nullopt);
  EXPECT_NE(waits.waited_since(kOperation), std::nullopt);
  EXPECT_EQ(waits.waited_since(kReceive), std::nullopt);
  waits.end(7);
  EXPECT_EQ(waits.find(7), std::nullopt);
  EXPECT_EQ(waits.waited_since(kOperation), std::nullopt);
}

TEST(WorkWaits, AThreadMayWaitForAnyOfSeveral) {
  WorkWaits waits;
  waits.begin(7, kOperation);
  const auto since = waits.waited_since(kOperation);
  waits.begin(7, kReceive);
  EXPECT_EQ(waits.find(7), std::nullopt);
  EXPECT_EQ(waits.waited_since(kOperation), since);
  EXPECT_EQ(waits.waited_since(kReceive), since) << "it is the same wait";
  waits.begin(8, kReceive);
  waits.end(7);
  EXPECT_EQ(waits.waited_since(kOperation), std::nullopt);
  EXPECT_GT(waits.waited_since(kReceive), since);
}

TEST(WorkWaits, ACallbackOfAnotherWorkMayBeCalledDuringAWait) {
  WorkWaits waits;
  waits.add_callback({.group = 1, .sequence = 9});
  EXPECT_TRUE(waits.has_callback_besides(kOperation));
  waits.remove_callback({.group = 1, .sequence = 9});
  EXPECT_FALSE(waits.has_callback_besides(kOperation));
  waits.add_callback(kReceive);
  EXPECT_TRUE(waits.has_callback_besides(kOperation));
  EXPECT_FALSE(waits.has_callback_besides(kReceive));
}

TEST(WorkWaits, ACallbackOfALaterOperationOfTheGroupIsNotCalledDuringAWait) {
  WorkWaits waits;
  waits.add_callback(kOperation);
  waits.add_callback({.group = 2, .sequence = 6});
  EXPECT_FALSE(waits.has_callback_besides(kOperation));
  waits.add_callback({.group = 2, .sequence = 4});
  EXPECT_TRUE(waits.has_callback_besides(kOperation));
}

}  // namespace
}  // namespace unisono::comm
