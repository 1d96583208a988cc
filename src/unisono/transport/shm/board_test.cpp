#include "unisono/transport/shm/board.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/patience.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {
namespace {

// The only rank of its node.
class BoardTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::vector<std::byte> bytes() const {
    return {arena_->data(), arena_->data() + Board::n_bytes(1)};
  }

  std::shared_ptr<const Arena> arena_ =
      std::make_shared<const Arena>(Arena::create(Board::n_bytes(1)));
  Board board_{{{.rank = 0, .arena = arena_, .offset_bytes = 0}}, 0};
};

TEST_F(BoardTest, TellsOfARefusedCall) {
  board_.note_refused(0, "all_reduce: no");
  EXPECT_EQ(board_.standing(0).refused, "all_reduce: no");
}

TEST_F(BoardTest, TellsWhatMessagesARankWaitsForUntilItNoLongerDoes) {
  board_.note_waits("waits in recv");
  EXPECT_EQ(board_.standing(0).waits, "waits in recv");
  board_.note_waits("");
  EXPECT_EQ(board_.standing(0).waits, "");
}

TEST_F(BoardTest, IsLeftAloneByACallThatIsRefusedAfterLeave) {
  board_.leave();
  const std::vector<std::byte> left = bytes();
  board_.note_refused(0, "all_reduce: no");
  EXPECT_EQ(bytes(), left);
}

// There the arena is not mapped.
TEST_F(BoardTest, IsLeftAloneByAChildOfFork) {
  const pid_t child = ::fork();
  if (child == 0) {
    board_.note_refused(0, "all_reduce: no");
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(board_.standing(0).refused, "");
}

// When a wait is shown, the rank comes that it waits for.
class ComesWhenShown final : public transport::WaitReporter {
 public:
  explicit ComesWhenShown(Board& late) : late_(late) {}

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
    late_.show_card(1);
  }

  void hide() const noexcept override { is_shown = false; }

  mutable bool is_shown = false;

 private:
  Board& late_;
};

TEST(BoardOfTwo, AWaitIsNotShownAnyMoreWhenAllHaveComeThoughTheOperationGoesOn) {
  std::vector<Board::Seat> seats;
  for (const int rank : {0, 1}) {
    seats.push_back({.rank = rank,
                     .arena = std::make_shared<const Arena>(Arena::create(Board::n_bytes(2))),
                     .offset_bytes = 0});
  }
  Board mine(seats, 0);
  Board late(seats, 1);
  const transport::Failure failure;
  const ComesWhenShown reporter(late);
  transport::Patience patience(
      TimeLimit(std::chrono::seconds(30)), std::chrono::milliseconds(0), failure, reporter);
  mine.show_card(1);
  mine.wait_for_cards(1, {.n_spins = 1, .n_yields = 1}, patience);
  EXPECT_FALSE(reporter.is_shown);
}

}  // namespace
}  // namespace unisono::shm
