#include "unisono/transport/waiter.h"

#include <stdexcept>

#include <gtest/gtest.h>

#include "unisono/base/spin.h"

namespace unisono::transport {
namespace {

constexpr WaitMode kMode{.n_spins = 4, .n_yields = 3};

// Looks until the one with this number, from 1, sees the end.
auto done_at(int last, int& n_looks) {
  return [last, &n_looks] { return ++n_looks == last ? Look::kDone : Look::kNothing; };
}

Look never_sleep() {
  ADD_FAILURE() << "a wait slept that had to look";
  return Look::kDone;
}

// A limit that has fallen as far as it goes.
void lower(SpinLimit& limit) {
  for (int n = 0; n < 10; ++n) {
    limit.note_yielded(1);
  }
}

TEST(Spin, CountsTheLooksThatWereInVain) {
  int n_looks = 0;
  EXPECT_EQ(spin(4, done_at(1, n_looks)), 0);
  n_looks = 0;
  EXPECT_EQ(spin(4, done_at(4, n_looks)), 3);
  EXPECT_EQ(n_looks, 4);
  n_looks = 0;
  EXPECT_EQ(spin(4, done_at(5, n_looks)), 4);
  EXPECT_EQ(n_looks, 4);
  EXPECT_EQ(spin(0, done_at(1, n_looks)), 0);
  EXPECT_EQ(n_looks, 4);
}

TEST(Wait, EndsByTheFirstLookAndLearnsNothing) {
  SpinLimit limit;
  lower(limit);
  int n_looks = 0;
  wait(kMode, &limit, done_at(1, n_looks), never_sleep);
  EXPECT_EQ(n_looks, 1);
  EXPECT_EQ(limit.n_spins(), SpinLimit::kLeast);
}

TEST(Wait, LearnsFromASpin) {
  SpinLimit limit;
  lower(limit);
  int n_looks = 0;
  wait(kMode, &limit, done_at(4, n_looks), never_sleep);
  EXPECT_EQ(n_looks, 4);
  EXPECT_EQ(limit.n_spins(), 2 * SpinLimit::kLeast);
}

TEST(Wait, LearnsFromAYield) {
  SpinLimit limit;
  int n_looks = 0;
  wait(kMode, &limit, done_at(6, n_looks), never_sleep);  // After 4 spins and 1 yield.
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost / 2);
}

TEST(Wait, SleepsAfterAllLooksAndAgainUntilItIsDone) {
  SpinLimit limit;
  int n_looks = 0;
  int n_sleeps = 0;
  wait(kMode, &limit, done_at(100, n_looks), [&] {
    EXPECT_EQ(n_looks, 7);
    return ++n_sleeps == 3 ? Look::kDone : Look::kNothing;
  });
  EXPECT_EQ(n_sleeps, 3);
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost);
}

TEST(Wait, LooksAgainWhereTheSleepEndedWithProgress) {
  SpinLimit limit;
  int n_looks = 0;
  int n_sleeps = 0;
  wait(kMode, &limit, done_at(8, n_looks), [&] {
    ++n_sleeps;
    return Look::kProgress;
  });
  EXPECT_EQ(n_sleeps, 1);
  EXPECT_EQ(limit.n_spins(), SpinLimit::kMost) << "what came after a sleep says nothing of spins";
}

TEST(Wait, CountsYieldsFromTheLastProgress) {
  int n_looks = 0;
  wait(
      kMode,
      nullptr,
      [&] {
        ++n_looks;
        return n_looks == 12                  ? Look::kDone
               : n_looks == 7 || n_looks == 9 ? Look::kProgress
                                              : Look::kNothing;
      },
      never_sleep);
  EXPECT_EQ(n_looks, 12);
}

TEST(Wait, EndsWithWhatTheSleepThrows) {
  int n_looks = 0;
  EXPECT_THROW(wait(kMode,
                    nullptr,
                    done_at(100, n_looks),
                    []() -> Look { throw std::runtime_error("the peer is gone"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace unisono::transport
