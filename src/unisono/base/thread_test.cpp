#include "unisono/base/thread.h"

#include <pthread.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/testing/no_more_threads.h"

namespace unisono {
namespace {

TEST(StartThread, RunsTheBodyUnderTheName) {
  std::string name;
  std::thread thread = start_thread("unisono-test", "no thread", [&] {
    std::array<char, 16> buffer{};
    ::pthread_getname_np(::pthread_self(), buffer.data(), buffer.size());
    name = buffer.data();
  });
  thread.join();
  EXPECT_EQ(name, "unisono-test");
}

TEST(StartThread, WithoutRoomForAThreadTheErrorSaysWhoWantedIt) {
  const testing::NoMoreThreads none;
  try {
    start_thread("unisono-test", "rank 3 can't start its thread", [] {}).join();
    FAIL() << "a thread was started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(),
                ::testing::MatchesRegex("rank 3 can't start its thread: .*; raise the limit.*"));
  }
}

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

TEST(SpinLimit, FallsToTheLeastWhereAYieldBringsThePeers) {
  SpinLimit limit;
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
  limit.note_yielded(1);
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost / 2);
  for (int n = 0; n < 20; ++n) {
    limit.note_yielded(1);
  }
  EXPECT_EQ(limit.n_spins(), SpinLimit::kLeast);
}

TEST(SpinLimit, RisesWhereYieldsDoNotBringThem) {
  for (const int n_yields : {0, 100}) {
    SpinLimit limit;
    limit.note_yielded(1);
    limit.note_yielded(n_yields);
    EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
  }
}

TEST(SpinLimit, RisesToTheMostWhereSpinningDoes) {
  SpinLimit limit;
  for (int n = 0; n < 20; ++n) {
    limit.note_yielded(1);
  }
  limit.note_spun();
  EXPECT_EQ(limit.n_spins(), 2 * SpinLimit::kLeast);
  for (int n = 0; n < 20; ++n) {
    limit.note_spun();
  }
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
}

}  // namespace
}  // namespace unisono
