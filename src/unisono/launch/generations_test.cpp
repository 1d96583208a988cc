#include "unisono/launch/generations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr GenerationEnd kFailedSoon{.has_failed = true, .lifetime = seconds(1)};

TEST(RestartPolicy, OfNoRestartsRestartsNothing) {
  RestartPolicy policy(0);
  EXPECT_EQ(policy.restart_after(kFailedSoon), std::nullopt);
  EXPECT_EQ(policy.n_used(), 0);
}

TEST(RestartPolicy, RestartsAsOftenAsAllowed) {
  RestartPolicy policy(2);
  EXPECT_TRUE(policy.restart_after(kFailedSoon));
  EXPECT_TRUE(policy.restart_after(kFailedSoon));
  EXPECT_FALSE(policy.restart_after(kFailedSoon));
  EXPECT_EQ(policy.n_used(), 2);
}

TEST(RestartPolicy, OnlyAFailedRankIsAReason) {
  RestartPolicy policy(2);
  EXPECT_FALSE(policy.restart_after({.has_failed = false, .lifetime = seconds(1)}));
  EXPECT_EQ(policy.n_used(), 0);
}

TEST(RestartPolicy, WaitsLongerAndLongerWhereRanksFailSoon) {
  RestartPolicy policy(100);
  std::vector<milliseconds> delays;
  for (int i = 0; i < 10; ++i) {
    delays.push_back(policy.restart_after(kFailedSoon).value());
  }
  EXPECT_THAT(delays,
              ElementsAre(milliseconds(0),
                          milliseconds(100),
                          milliseconds(200),
                          milliseconds(400),
                          milliseconds(800),
                          milliseconds(1600),
                          milliseconds(3200),
                          milliseconds(6400),
                          milliseconds(10'000),
                          milliseconds(10'000)));
}

TEST(RestartPolicy, AGenerationThatLivedLongIsReplacedAtOnce) {
  RestartPolicy policy(100);
  for (int i = 0; i < 5; ++i) {
    (void)policy.restart_after(kFailedSoon);
  }
  EXPECT_EQ(policy.restart_after({.has_failed = true, .lifetime = seconds(10)}), milliseconds(0));
  EXPECT_EQ(policy.restart_after(kFailedSoon), milliseconds(100));
}

}  // namespace
}  // namespace unisono::launch
