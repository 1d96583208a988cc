#include "unisono/store/store_map.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ClientId kAnna = 1;
constexpr ClientId kBert = 2;

TEST(StoreMap, SumsAreDecimalText) {
  StoreMap map;
  EXPECT_EQ(map.add("k", 2), 2);
  map.set("k", "5");
  EXPECT_EQ(map.add("k", -7), -2);
  EXPECT_EQ(*map.find("k"), "-2");
}

TEST(StoreMap, AddingToWhatIsNoNumberChangesNothing) {
  StoreMap map;
  const std::string largest = std::to_string(std::numeric_limits<std::int64_t>::max());
  for (const std::string& text : {std::string("five"), std::string(), std::string("5 "), largest}) {
    map.set("k", text);
    EXPECT_EQ(map.add("k", 1), std::nullopt) << text;
    EXPECT_EQ(map.barrier(kAnna, "k", 1), std::nullopt) << text;
    EXPECT_EQ(*map.find("k"), text);
  }
}

TEST(StoreMap, CompareSetFollowsPyTorch) {
  StoreMap map;
  EXPECT_EQ(map.compare_set("k", "x", "new"), "x") << "missing, something expected";
  EXPECT_EQ(map.find("k"), nullptr);
  EXPECT_EQ(map.compare_set("k", "", "new"), "new") << "missing, nothing expected";
  EXPECT_EQ(map.compare_set("k", "old", "newer"), "new") << "another value";
  EXPECT_EQ(map.compare_set("k", "new", "newer"), "newer") << "the expected value";
  EXPECT_EQ(*map.find("k"), "newer");
}

TEST(StoreMap, EveryWayAKeyAppearsEndsAWait) {
  const std::vector<void (*)(StoreMap&)> ways{
      [](StoreMap& map) { map.set("k", ""); },
      [](StoreMap& map) { (void)map.add("k", 1); },
      [](StoreMap& map) { map.append("k", "x"); },
      [](StoreMap& map) { (void)map.compare_set("k", "", "x"); },
      [](StoreMap& map) { map.push("k", "x"); },
      [](StoreMap& map) { (void)map.barrier(kBert, "k", 1); }};
  for (const auto appear : ways) {
    StoreMap map;
    EXPECT_FALSE(map.wait(kAnna, {"k"}));
    EXPECT_THAT(map.take_woken(), IsEmpty());
    appear(map);
    EXPECT_THAT(map.take_woken(), ElementsAre(kAnna));
    EXPECT_THAT(map.take_woken(), IsEmpty());
    EXPECT_TRUE(map.wait(kBert, {"k"}));
  }
}

TEST(StoreMap, AWaitEndsWithItsLastKeyAlsoIfOneHasGoneAgain) {
  StoreMap map;
  map.set("c", "");
  EXPECT_FALSE(map.wait(kAnna, {"a", "b", "c", "a"}));
  map.set("a", "");
  map.set("a", "");
  EXPECT_TRUE(map.erase("a"));
  EXPECT_THAT(map.take_woken(), IsEmpty());
  map.set("b", "");
  EXPECT_THAT(map.take_woken(), ElementsAre(kAnna));
}

TEST(StoreMap, AValueWakesAllAndAQueuePushOne) {
  StoreMap map;
  for (const ClientId client : {kAnna, kBert}) {
    EXPECT_FALSE(map.wait(client, {"k"}));
  }
  map.push("k", "1");
  EXPECT_THAT(map.take_woken(), ElementsAre(kAnna));
  map.push("k", "2");
  EXPECT_THAT(map.take_woken(), ElementsAre(kBert));
  EXPECT_EQ(map.pop("k"), "1");
  EXPECT_EQ(map.queue_length("k"), 1U);
  EXPECT_TRUE(map.has("k"));
  EXPECT_EQ(map.n_keys(), 0U) << "queues are no keys";
  EXPECT_EQ(map.pop("k"), "2");
  EXPECT_EQ(map.pop("k"), std::nullopt);
  EXPECT_FALSE(map.has("k"));
  for (const ClientId client : {kAnna, kBert}) {
    EXPECT_FALSE(map.wait(client, {"k"}));
  }
  map.set("k", "");
  EXPECT_THAT(map.take_woken(), ElementsAre(kAnna, kBert));
}

TEST(StoreMap, AQueuePushWakesTheFirstWhoWaitsForNothingElse) {
  StoreMap map;
  EXPECT_FALSE(map.wait(kAnna, {"q", "other"}));
  EXPECT_FALSE(map.wait(kBert, {"q"}));
  map.push("q", "1");
  EXPECT_THAT(map.take_woken(), ElementsAre(kBert));
  map.set("other", "");
  EXPECT_THAT(map.take_woken(), ElementsAre(kAnna));
}

TEST(StoreMap, WhatAClientThatHasGoneLeavesInAQueueWakesTheNext) {
  StoreMap map;
  for (const ClientId client : {kAnna, kBert}) {
    EXPECT_FALSE(map.wait(client, {"q"}));
  }
  map.push("q", "1");
  EXPECT_THAT(map.take_woken(), ElementsAre(kAnna));
  map.forget(kAnna);
  EXPECT_THAT(map.take_woken(), ElementsAre(kBert));
  EXPECT_EQ(map.pop("q"), "1");
}

TEST(StoreMap, AKeyThatIsNamedTwiceIsWaitedForOnce) {
  StoreMap map;
  EXPECT_FALSE(map.wait(kAnna, {"q", "q"}));
  map.push("q", "1");
  EXPECT_THAT(map.take_woken(), ElementsAre(kAnna));
}

TEST(StoreMap, CancelledWaitsAreForgotten) {
  StoreMap map;
  EXPECT_FALSE(map.wait(kAnna, {"a", "b"}));
  EXPECT_FALSE(map.wait(kBert, {"a"}));
  map.cancel(kAnna);
  map.cancel(kAnna);
  map.set("a", "");
  map.set("b", "");
  EXPECT_THAT(map.take_woken(), ElementsAre(kBert));
}

TEST(StoreMap, ACancelledWaitDoesNotCountForTheNextOne) {
  StoreMap map;
  EXPECT_FALSE(map.wait(kAnna, {"a"}));
  map.cancel(kAnna);
  EXPECT_FALSE(map.wait(kAnna, {"b"}));
  map.set("a", "");
  EXPECT_THAT(map.take_woken(), IsEmpty());
  map.set("b", "");
  EXPECT_THAT(map.take_woken(), ElementsAre(kAnna));
}

TEST(StoreMap, ABarrierCountsAndWakesOnlyWhenComplete) {
  StoreMap map;
  constexpr ClientId kCarl = 3;
  EXPECT_FALSE(map.wait(kCarl, {"b"}));
  EXPECT_EQ(map.barrier(kAnna, "b", 2), false);
  EXPECT_EQ(*map.find("b"), "1");
  EXPECT_THAT(map.take_woken(), IsEmpty()) << "the count alone ends no wait";
  EXPECT_EQ(map.barrier(kBert, "b", 2), true);
  EXPECT_THAT(map.take_woken(), ElementsAre(kCarl, kAnna));
}

// Returns "client: before -> after" for each change, with "-" for a missing value.
std::vector<std::string> news_of(StoreMap& map) {
  std::vector<std::string> lines;
  for (const StoreMap::News& item : map.take_news()) {
    lines.push_back(std::to_string(item.client) + " " + item.change->key + ": " +
                    item.change->before.value_or("-") + " -> " + item.change->after.value_or("-"));
  }
  return lines;
}

TEST(StoreMap, EveryChangeOfAWatchedKeyIsNewsForThoseWhoWatchIt) {
  StoreMap map;
  map.set("n", "1");
  map.watch(kAnna, "n");
  map.watch(kAnna, "n");
  map.watch(kBert, "other");
  map.set("n", "2");
  map.set("n", "2");
  EXPECT_EQ(map.add("n", 3), 5);
  map.append("n", "0");
  EXPECT_EQ(map.compare_set("n", "no", "7"), "50");
  EXPECT_EQ(map.compare_set("n", "50", "7"), "7");
  EXPECT_TRUE(map.erase("n"));
  EXPECT_EQ(map.barrier(kBert, "n", 1), true);
  map.push("n", "queued");
  EXPECT_THAT(news_of(map),
              ElementsAre("1 n: 1 -> 2",
                          "1 n: 2 -> 5",
                          "1 n: 5 -> 50",
                          "1 n: 50 -> 7",
                          "1 n: 7 -> -",
                          "1 n: - -> 1"));
  EXPECT_THAT(news_of(map), IsEmpty());
}

TEST(StoreMap, WhoDoesNotWatchAnyMoreHearsNothing) {
  StoreMap map;
  map.watch(kAnna, "a");
  map.watch(kAnna, "b");
  map.watch(kBert, "a");
  map.unwatch(kBert, "b");
  map.unwatch(kAnna, "a");
  map.set("a", "1");
  map.set("b", "1");
  EXPECT_THAT(news_of(map), ElementsAre("2 a: - -> 1", "1 b: - -> 1"));
  map.forget(kAnna);
  map.forget(kBert);
  map.set("a", "2");
  map.set("b", "2");
  EXPECT_THAT(news_of(map), IsEmpty());
}

TEST(StoreMap, AValueThatIsSharedStaysAsItWas) {
  StoreMap map;
  EXPECT_EQ(map.share("k"), nullptr);
  map.set("k", "1");
  const auto first = map.share("k");
  map.append("k", "2");
  const auto second = map.share("k");
  map.set("k", "3");
  EXPECT_EQ(map.add("k", 1), 4);
  EXPECT_TRUE(map.erase("k"));
  EXPECT_EQ(*first, "1");
  EXPECT_EQ(*second, "12");
}

TEST(StoreMap, MemoryIsCountedAndGivenBack) {
  StoreMap map;
  map.set("k", std::string(1000, 'x'));
  EXPECT_GT(map.n_bytes(), 1000U);
  map.append("k", std::string(1000, 'x'));
  EXPECT_GT(map.n_bytes(), 2000U);
  map.set("k", "x");
  EXPECT_LT(map.n_bytes(), 1000U);
  EXPECT_EQ(map.add("n", 12345), 12345);
  map.push("q", "value");
  EXPECT_EQ(map.pop("q"), "value");
  EXPECT_TRUE(map.erase("k"));
  EXPECT_TRUE(map.erase("n"));
  EXPECT_FALSE(map.erase("n"));
  EXPECT_EQ(map.n_bytes(), 0U);
}

}  // namespace
}  // namespace unisono::store
