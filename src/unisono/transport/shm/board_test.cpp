#include "unisono/transport/shm/board.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace unisono::shm
