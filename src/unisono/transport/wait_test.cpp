#include "unisono/transport/wait.h"

#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

namespace unisono::transport {
namespace {

// Reports that all awaited ranks have left.
class AllLeft final : public WaitObserver {
 public:
  [[nodiscard]] Error timed_out(std::span<const int>) const override {
    return {ErrorCode::kTimeout, "time is up"};
  }

  [[nodiscard]] std::optional<Error> departed(std::span<const int>) const override {
    return Error(ErrorCode::kPeerLost, "it left");
  }

  void listen() const override {}

  void look_into(std::span<const int>) const override {}

  void stalled(std::chrono::milliseconds, std::span<const int>) const override { ++n_reports; }

  mutable int n_reports = 0;
};

ErrorCode code_of(WaitMonitor& wait_monitor, const std::function<std::vector<int>()>& late_ranks) {
  try {
    wait_monitor.check(late_ranks);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(WaitMonitor, ARankThatLeftWithoutItsPartIsAnError) {
  const Failure failure;
  const AllLeft reporter;
  WaitMonitor wait_monitor(
      TimeLimit(std::chrono::hours(1)), std::chrono::hours(1), failure, reporter);
  EXPECT_EQ(code_of(wait_monitor, [] { return std::vector<int>{3}; }), ErrorCode::kPeerLost);
}

TEST(WaitMonitor, ARankThatDidItsPartAndLeftMeanwhileIsNone) {
  const Failure failure;
  const AllLeft reporter;
  // The time limit has also passed, but no rank is late any more.
  WaitMonitor wait_monitor(
      TimeLimit(std::chrono::seconds(0)), std::chrono::milliseconds(0), failure, reporter);
  int n_looks = 0;
  EXPECT_NO_THROW(wait_monitor.check(
      [&] { return ++n_looks == 1 ? std::vector<int>{3} : std::vector<int>{}; }));
  EXPECT_EQ(n_looks, 2);
  EXPECT_EQ(reporter.n_reports, 0);
}

TEST(WaitMonitor, StallsAreReportedAndTheDeadlineEndsTheWait) {
  const Failure failure;

  class Here final : public WaitObserver {
   public:
    [[nodiscard]] Error timed_out(std::span<const int>) const override {
      return {ErrorCode::kTimeout, "time is up"};
    }

    [[nodiscard]] std::optional<Error> departed(std::span<const int>) const override {
      return std::nullopt;
    }

    void listen() const override {}

    void look_into(std::span<const int> late_ranks) const override {
      EXPECT_EQ(late_ranks.front(), 3);
      ++n_looks;
    }

    void stalled(std::chrono::milliseconds waited, std::span<const int>) const override {
      reports.push_back(waited);
    }

    mutable int n_looks = 0;
    mutable std::vector<std::chrono::milliseconds> reports;
  } const reporter;

  const auto late_ranks = [] { return std::vector<int>{3}; };
  WaitMonitor stalls(
      TimeLimit(std::chrono::hours(1)), std::chrono::milliseconds(0), failure, reporter);
  stalls.check(late_ranks);
  EXPECT_EQ(reporter.reports.size(), 1U);
  WaitMonitor is_over(TimeLimit(std::chrono::seconds(0)), std::chrono::hours(1), failure, reporter);
  EXPECT_EQ(code_of(is_over, late_ranks), ErrorCode::kTimeout);
  EXPECT_EQ(reporter.n_looks, 0) << "it is early yet";
  WaitMonitor looks(TimeLimit(std::chrono::hours(1)), std::chrono::hours(1), failure, reporter);
  const Deadline limit = Deadline::after(std::chrono::seconds(30));
  while (reporter.n_looks == 0 && !limit.has_passed()) {
    looks.check(late_ranks);
  }
  EXPECT_EQ(reporter.n_looks, 1);
  // Each report comes after twice the time of the previous report.
  reporter.reports.clear();
  std::chrono::milliseconds due(4);
  WaitMonitor again(TimeLimit(std::chrono::hours(1)), due, failure, reporter);
  while (reporter.reports.size() < 5 && !limit.has_passed()) {
    again.check(late_ranks);
  }
  for (const std::chrono::milliseconds waited : reporter.reports) {
    EXPECT_GE(waited, due);
    due *= 2;
  }
}

// Records the waits that are shown.
class Shown final : public WaitObserver {
 public:
  [[nodiscard]] Error timed_out(std::span<const int>) const override {
    return {ErrorCode::kTimeout, "time is up"};
  }

  [[nodiscard]] std::optional<Error> departed(std::span<const int>) const override {
    return std::nullopt;
  }

  void listen() const override {}

  void look_into(std::span<const int>) const override {}

  [[nodiscard]] std::optional<Deadline::Clock::time_point> waited_since() const override {
    return waits_from;
  }

  void stalled(std::chrono::milliseconds waited, std::span<const int>) const override {
    reports.push_back(waited);
  }

  void show(Deadline::Clock::time_point begin, std::span<const int> late_ranks) const override {
    since = begin;
    late = std::vector<int>(late_ranks.begin(), late_ranks.end());
  }

  void hide() const noexcept override {
    late.reset();
    ++n_hidden;
  }

  std::optional<Deadline::Clock::time_point> waits_from = Deadline::Clock::time_point::min();
  mutable std::vector<std::chrono::milliseconds> reports;
  mutable std::optional<std::vector<int>> late;
  mutable Deadline::Clock::time_point since;
  mutable int n_hidden = 0;
};

TEST(WaitMonitor, AWaitIsShownWhileItIsLong) {
  const Failure failure;
  const Shown reporter;
  {
    WaitMonitor wait_monitor(
        TimeLimit(std::chrono::hours(1)), std::chrono::milliseconds(0), failure, reporter);
    wait_monitor.check([] { return std::vector<int>{3, 4}; });
    EXPECT_EQ(reporter.late, (std::vector<int>{3, 4}));
    wait_monitor.check([] { return std::vector<int>{4}; });
    EXPECT_EQ(reporter.late, std::vector<int>{4});
    wait_monitor.check([] { return std::vector<int>{}; });
    EXPECT_EQ(reporter.late, std::nullopt) << "nobody is waited for";
    wait_monitor.check([] { return std::vector<int>{4}; });
    EXPECT_EQ(reporter.n_hidden, 1);
  }
  EXPECT_EQ(reporter.n_hidden, 2) << "the operation is over";
  EXPECT_EQ(reporter.late, std::nullopt);
  {
    WaitMonitor is_short(
        TimeLimit(std::chrono::hours(1)), std::chrono::hours(1), failure, reporter);
    is_short.check([] { return std::vector<int>{3}; });
    EXPECT_EQ(reporter.late, std::nullopt);
  }
  EXPECT_EQ(reporter.n_hidden, 2) << "it was never shown";
}

TEST(WaitMonitor, AWaitBeginsAnewWhereSomethingCame) {
  const Failure failure;
  const Shown reporter;
  WaitMonitor wait_monitor(
      TimeLimit(std::chrono::hours(1)), std::chrono::milliseconds(0), failure, reporter);
  wait_monitor.check([] { return std::vector<int>{3}; });
  const auto first = reporter.since;
  wait_monitor.check([] { return std::vector<int>{3}; });
  EXPECT_EQ(reporter.since, first);
  wait_monitor.note_progress();
  EXPECT_EQ(reporter.late, std::nullopt);
  const auto moved = Deadline::Clock::now();
  wait_monitor.check([] { return std::vector<int>{3}; });
  EXPECT_EQ(reporter.late, std::vector<int>{3});
  EXPECT_GE(reporter.since, moved);
}

TEST(WaitMonitor, AStallBeginsWithTheWait) {
  const Failure failure;
  Shown reporter;
  const auto check = [](WaitMonitor& wait_monitor) {
    wait_monitor.check([] { return std::vector<int>{3}; });
  };
  WaitMonitor wait_monitor(
      TimeLimit(std::chrono::hours(1)), std::chrono::milliseconds(20), failure, reporter);
  reporter.waits_from.reset();
  check(wait_monitor);
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  EXPECT_TRUE(wait_monitor.next_check().has_passed());
  check(wait_monitor);
  EXPECT_TRUE(reporter.reports.empty()) << "nobody waits";
  EXPECT_EQ(reporter.late, std::nullopt);
  for (int wait = 1; wait <= 2; ++wait) {
    const auto begin = Deadline::Clock::now();
    reporter.waits_from = begin;
    check(wait_monitor);
    EXPECT_EQ(reporter.reports.size(), static_cast<std::size_t>(wait - 1)) << "it has just begun";
    EXPECT_EQ(reporter.late, std::nullopt);
    std::this_thread::sleep_until(wait_monitor.next_check().time());
    check(wait_monitor);
    ASSERT_EQ(reporter.reports.size(), static_cast<std::size_t>(wait));
    EXPECT_GE(reporter.reports.back(), std::chrono::milliseconds(20));
    EXPECT_LE(reporter.reports.back(), Deadline::Clock::now() - begin);
    EXPECT_EQ(reporter.since, begin);
  }
}

// The received error concerns the group, not the awaited rank.
TEST(WaitMonitor, WhatIsHeardWhileItWaitsEndsTheWait) {
  Failure failure;

  class Told final : public WaitObserver {
   public:
    explicit Told(Failure& failure) : failure_(failure) {}

    [[nodiscard]] Error timed_out(std::span<const int>) const override {
      return {ErrorCode::kTimeout, "time is up"};
    }

    [[nodiscard]] std::optional<Error> departed(std::span<const int>) const override {
      return std::nullopt;
    }

    void listen() const override { failure_.set({ErrorCode::kMismatch, "another knew"}); }

    void look_into(std::span<const int>) const override {}

    void stalled(std::chrono::milliseconds, std::span<const int>) const override {}

   private:
    Failure& failure_;
  } const reporter(failure);

  WaitMonitor wait_monitor(
      TimeLimit(std::chrono::hours(1)), std::chrono::hours(1), failure, reporter);
  const Deadline limit = Deadline::after(std::chrono::seconds(30));
  auto code = ErrorCode::kInternal;
  while (code == ErrorCode::kInternal && !limit.has_passed()) {
    std::this_thread::sleep_until(wait_monitor.next_check().time());
    code = code_of(wait_monitor, [] { return std::vector<int>{3}; });
  }
  EXPECT_EQ(code, ErrorCode::kMismatch);
}

TEST(WaitMonitor, AnInterruptionEndsTheWait) {
  const Failure failure;
  const AllLeft reporter;
  WaitMonitor wait_monitor(
      TimeLimit(std::chrono::hours(1)), std::chrono::hours(1), failure, reporter);
  set_interruption_check([] { throw Error(ErrorCode::kInterrupted, "enough"); });
  const Deadline next = wait_monitor.next_check();
  EXPECT_LE(next.remaining(), std::chrono::milliseconds(100));
  while (!next.has_passed()) {
    std::this_thread::sleep_until(next.time());
  }
  EXPECT_EQ(code_of(wait_monitor, [] { return std::vector<int>{3}; }), ErrorCode::kInterrupted);
  set_interruption_check(nullptr);
}

constexpr WaitMode kMode{.n_spins = 4, .n_yields = 3};

// Returns a poll function that succeeds in the call with this number, counted from 1.
auto done_at(int last, int& n_looks) {
  return [last, &n_looks] { return ++n_looks == last ? Look::kDone : Look::kNothing; };
}

Look never_sleep() {
  ADD_FAILURE() << "a wait slept that had to look";
  return Look::kDone;
}

// Lowers a limit to its minimum.
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
