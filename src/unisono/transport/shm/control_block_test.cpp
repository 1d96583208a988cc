#include "unisono/transport/shm/control_block.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/transport/failure.h"

namespace unisono::shm {
namespace {

TEST(SeqlockText, HasNothingBeforeTheFirstWrite) {
  EXPECT_FALSE(std::make_unique<SeqlockText>()->read().has_value());
}

TEST(SeqlockText, HasWhatWasWrittenLast) {
  const auto note = std::make_unique<SeqlockText>();
  note->write(1, "something longer");
  note->write(0, "short");
  const std::optional<SeqlockText::Content> content = note->read();
  ASSERT_TRUE(content.has_value());
  EXPECT_EQ(content->number, 0U);
  EXPECT_EQ(content->text, "short");
}

TEST(SeqlockText, KeepsTheBeginningOfALongText) {
  const auto note = std::make_unique<SeqlockText>();
  note->write(1, std::string(2 * SeqlockText::kMaxBytes, 'x'));
  EXPECT_EQ(note->read().value().text, std::string(SeqlockText::kMaxBytes, 'x'));
}

TEST(SeqlockText, CutsNoCharacter) {
  const auto note = std::make_unique<SeqlockText>();
  const std::string text(SeqlockText::kMaxBytes - 1, 'x');
  note->write(1, text + "\u20ac");
  EXPECT_EQ(note->read().value().text, text);
}

TEST(SeqlockText, IsNeverReadInPart) {
  const auto note = std::make_unique<SeqlockText>();
  std::atomic<bool> has_ended = false;
  std::jthread writer([&] {
    for (std::uint64_t number = 0; number < 20000; ++number) {
      note->write(number, std::string(number % 100, static_cast<char>('a' + number % 26)));
    }
    has_ended = true;
  });
  while (!has_ended) {
    if (const std::optional<SeqlockText::Content> content = note->read()) {
      const std::uint64_t number = content->number;
      ASSERT_EQ(content->text, std::string(number % 100, static_cast<char>('a' + number % 26)));
    }
  }
}

// The only rank of its node.
class ControlBlockTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<std::byte> bytes() const {
    return {arena_->data(), arena_->data() + ControlBlock::n_bytes(1)};
  }

  std::shared_ptr<const Arena> arena_ =
      std::make_shared<const Arena>(Arena::create(ControlBlock::n_bytes(1)));
  ControlBlock control_block_{
      std::array{0}, std::array{ArenaPart{.arena = arena_, .offset_bytes = 0}}, 0};
};

TEST_F(ControlBlockTest, TellsOfARefusedCall) {
  control_block_.note_refused(0, "all_reduce: no");
  EXPECT_EQ(control_block_.rank_progress(0).refused, "all_reduce: no");
}

TEST_F(ControlBlockTest, TellsWhatMessagesARankWaitsForUntilItNoLongerDoes) {
  control_block_.note_waits("waits in recv");
  EXPECT_EQ(control_block_.rank_progress(0).waits, "waits in recv");
  control_block_.note_waits("");
  EXPECT_EQ(control_block_.rank_progress(0).waits, "");
}

TEST_F(ControlBlockTest, IsLeftAloneByACallThatIsRefusedAfterLeave) {
  control_block_.leave();
  const std::vector<std::byte> left = bytes();
  control_block_.note_refused(0, "all_reduce: no");
  EXPECT_EQ(bytes(), left);
}

// In a child the arena is not mapped.
TEST_F(ControlBlockTest, IsLeftAloneByAChildOfFork) {
  const pid_t child = ::fork();
  if (child == 0) {
    control_block_.note_refused(0, "all_reduce: no");
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(control_block_.rank_progress(0).refused, "");
}

// Makes the awaited rank arrive when a wait is shown.
class ComesWhenShown final : public transport::WaitObserver {
 public:
  explicit ComesWhenShown(ControlBlock& late) : late_(late) {}

  [[nodiscard]] Error timed_out(std::span<const int>) const override {
    return {ErrorCode::kTimeout, "time is up"};
  }

  [[nodiscard]] std::optional<Error> departed(std::span<const int>) const override {
    return std::nullopt;
  }

  void listen() const override {}

  void look_into(std::span<const int>) const override {}

  void stalled(std::chrono::milliseconds, std::span<const int>) const override {}

  void show(Deadline::Clock::time_point /*since*/, std::span<const int> late) const override {
    EXPECT_EQ(std::vector<int>(late.begin(), late.end()), std::vector<int>{1});
    is_shown = true;
    late_.show_header(1);
  }

  void hide() const noexcept override { is_shown = false; }

  mutable bool is_shown = false;

 private:
  ControlBlock& late_;
};

constexpr std::array kRanks{0, 1};

std::vector<ArenaPart> two_parts() {
  std::vector<ArenaPart> parts;
  for ([[maybe_unused]] const int rank : kRanks) {
    parts.push_back(
        {.arena = std::make_shared<const Arena>(Arena::create(ControlBlock::n_bytes(2))),
         .offset_bytes = 0});
  }
  return parts;
}

TEST(ControlBlockOfTwo, AWaitIsNotShownAnyMoreWhenAllHaveComeThoughTheOperationGoesOn) {
  const std::vector<ArenaPart> parts = two_parts();
  ControlBlock mine(kRanks, parts, 0);
  ControlBlock late(kRanks, parts, 1);
  const transport::Failure failure;
  const ComesWhenShown reporter(late);
  transport::WaitMonitor wait_monitor(
      TimeLimit(std::chrono::seconds(30)), std::chrono::milliseconds(0), failure, reporter);
  mine.show_header(1);
  mine.wait_for_headers(1, {.n_spins = 1, .n_yields = 1}, wait_monitor);
  EXPECT_FALSE(reporter.is_shown);
}

// Reports only timeouts.
class Impatient final : public transport::WaitObserver {
 public:
  [[nodiscard]] Error timed_out(std::span<const int> late_ranks) const override {
    return {ErrorCode::kTimeout, "late: " + std::to_string(late_ranks.front())};
  }

  [[nodiscard]] std::optional<Error> departed(std::span<const int> /*late_ranks*/) const override {
    return std::nullopt;
  }

  void listen() const override {}

  void look_into(std::span<const int> /*late_ranks*/) const override {}

  void stalled(std::chrono::milliseconds /*waited*/,
               std::span<const int> /*late_ranks*/) const override {}

  void show(Deadline::Clock::time_point /*since*/,
            std::span<const int> /*late_ranks*/) const override {}

  void hide() const noexcept override {}
};

// Two ranks of a node that are driven by one thread.
class TwoControlBlocks : public ::testing::Test {
 protected:
  // Returns the error; "" if the rank completed the wait.
  std::string sync(ControlBlock& control_block) const {
    transport::WaitMonitor wait_monitor(
        TimeLimit(std::chrono::milliseconds(1)), std::chrono::hours(1), failure_, reporter_);
    try {
      control_block.sync({.n_spins = 1, .n_yields = 0}, wait_monitor);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::vector<ArenaPart> parts_ = two_parts();
  ControlBlock first_{kRanks, parts_, 0};
  ControlBlock second_{kRanks, parts_, 1};
  transport::Failure failure_;
  Impatient reporter_;
};

// The rank that timed out may have written to its memory while the other rank still read it.
TEST_F(TwoControlBlocks, ARankThatGaveUpWaitingHasNotComeForThoseThatComeLater) {
  EXPECT_EQ(sync(first_), "late: 1");
  first_.give_up();
  EXPECT_EQ(sync(second_), "late: 0");
}

TEST_F(TwoControlBlocks, ARankThatGivesUpLaterHasComeForThoseThatAreStillThere) {
  EXPECT_EQ(sync(first_), "late: 1");
  EXPECT_EQ(sync(second_), "");
  second_.give_up();
  EXPECT_EQ(sync(first_), "late: 1");
  ControlBlock again{kRanks, parts_, 0};
  EXPECT_EQ(sync(again), "") << "the first stage, which the other rank has passed";
}

using ::testing::Each;

constexpr std::size_t kMost = 100'000;
constexpr std::size_t kOffset = 61;

std::vector<std::byte> distinct_bytes() {
  std::vector<std::byte> bytes(kMost + 2 * kOffset);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i % 251 + 1);
  }
  return bytes;
}

class CacheLine : public ::testing::TestWithParam<std::size_t> {};

TEST_P(CacheLine, CopiesAndLeavesTheOriginalAsItWas) {
  const std::size_t n_bytes = GetParam();
  std::vector<std::byte> from = distinct_bytes();
  const std::vector<std::byte> original = from;
  std::vector<std::byte> to(from.size());
  take_over(to.data() + kOffset, from.data() + kOffset, n_bytes);
  EXPECT_EQ(from, original);
  const auto begin = to.begin() + kOffset;
  const auto end = begin + static_cast<std::ptrdiff_t>(n_bytes);
  EXPECT_TRUE(std::equal(begin, end, original.begin() + kOffset));
  EXPECT_THAT(std::vector(to.begin(), begin), Each(std::byte{0}));
  EXPECT_THAT(std::vector(end, to.end()), Each(std::byte{0}));
}

TEST_P(CacheLine, HandsBackTheSameBytes) {
  std::vector<std::byte> bytes = distinct_bytes();
  const std::vector<std::byte> original = bytes;
  hand_back(bytes.data() + kOffset, GetParam());
  EXPECT_EQ(bytes, original);
}

INSTANTIATE_TEST_SUITE_P(Sizes,
                         CacheLine,
                         ::testing::Values(0, 1, 63, 64, 65, 4095, 4096, 4097, kMost));

}  // namespace
}  // namespace unisono::shm
