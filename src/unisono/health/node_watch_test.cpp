#include "unisono/health/node_watch.h"

#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {
namespace {

using shm::SeatState;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::chrono::seconds kPatience{20};

// A node whose ranks are listening sockets of this process.
class NodeWatchTest : public ::testing::Test {
 protected:
  explicit NodeWatchTest(std::size_t n_ranks = 6)
      : memory_(shm::NodeMemory::create(std::vector<std::int64_t>(n_ranks, 1 << 20))) {
    for (std::size_t rank = 0; rank < n_ranks; ++rank) {
      const std::string name =
          "unisono-watch-test-" + std::to_string(::getpid()) + "-" + std::to_string(rank);
      listeners_.push_back(net::listen_unix_abstract(name));
      rendezvous::Member member;
      member.rank = static_cast<int>(rank);
      member.pid = ::getpid();
      member.node = "a";
      member.endpoint = name;
      roster_.members.push_back(std::move(member));
    }
  }

  NodeWatch& watch(int rank) {
    roster_.rank = rank;
    watches_.push_back(
        std::make_unique<NodeWatch>(loop_, roster_, memory_, [this](int ended, bool is_news) {
          ends_.emplace_back(ended, is_news);
        }));
    watches_.back()->start();
    return *watches_.back();
  }

  void run_until(const std::function<bool()>& is_over) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!is_over() && !deadline.has_passed()) {
      loop_.run_once(Deadline::after(std::chrono::milliseconds(10)));
    }
  }

  void end(std::size_t rank) { listeners_[rank].reset(); }

  void leave(std::size_t rank) {
    memory_.leave(rank);
    end(rank);
  }

  [[nodiscard]] bool is_watched(std::size_t rank) const {
    return net::accept_connection(listeners_[rank].get()).fd.is_open();
  }

  shm::NodeMemory memory_;
  rendezvous::Roster roster_;
  std::vector<Fd> listeners_;
  net::EventLoop loop_;
  std::vector<std::pair<int, bool>> ends_;
  std::vector<std::unique_ptr<NodeWatch>> watches_;
};

TEST_F(NodeWatchTest, ARankWatchesTheNextTwo) {
  watch(4);
  for (const std::size_t rank : {0U, 1U, 2U, 3U, 4U, 5U}) {
    EXPECT_EQ(is_watched(rank), rank == 5 || rank == 0) << "rank " << rank;
  }
}

TEST_F(NodeWatchTest, AnEndIsNewsForTheFirstWhoSeesIt) {
  watch(1);
  watch(2);
  end(3);
  run_until([&] { return ends_.size() == 2; });
  EXPECT_THAT(ends_, ElementsAre(Pair(3, true), Pair(3, false)));
  EXPECT_EQ(memory_.state(3), SeatState::kGone);
}

TEST_F(NodeWatchTest, ARankThatLeftIsNoNewsAndTheNextOneIsWatched) {
  watch(0);
  leave(1);
  run_until([&] { return !ends_.empty(); });
  EXPECT_THAT(ends_, ElementsAre(Pair(1, false)));
  EXPECT_EQ(memory_.state(1), SeatState::kLeft);
  end(3);
  run_until([&] { return ends_.size() == 2; });
  EXPECT_EQ(ends_.back(), std::pair(3, true));
}

TEST_F(NodeWatchTest, RanksThatEndTogetherAreAllSeen) {
  watch(0);
  for (const std::size_t rank : {1U, 2U, 3U, 4U}) {
    end(rank);
  }
  run_until([&] { return ends_.size() == 4; });
  EXPECT_THAT(
      ends_,
      ::testing::UnorderedElementsAre(Pair(1, true), Pair(2, true), Pair(3, true), Pair(4, true)));
  EXPECT_TRUE(is_watched(5));
}

TEST_F(NodeWatchTest, TheLastRankWatchesNobody) {
  watch(0);
  for (const std::size_t rank : {1U, 2U, 3U, 4U, 5U}) {
    leave(rank);
  }
  run_until([&] { return ends_.size() == 2; });
  EXPECT_THAT(ends_, ::testing::Each(Pair(::testing::_, false)));
}

// A child by clone() holds the rank's socket open.
TEST_F(NodeWatchTest, AProcessThatEndsIsSeenThoughItsSocketStaysOpen) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  roster_.members[1].pid = child;
  watch(0);
  loop_.run_once(Deadline::after(std::chrono::milliseconds(1)));
  EXPECT_THAT(ends_, IsEmpty());
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  run_until([&] { return !ends_.empty(); });
  EXPECT_THAT(ends_, ElementsAre(Pair(1, true)));
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace unisono::health
