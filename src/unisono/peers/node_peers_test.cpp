#include "unisono/peers/node_peers.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/thread.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/peers/control_plane.h"
#include "unisono/peers/testing/control_rank.h"

namespace unisono::peers {
namespace {

using testing::as_rank;
using testing::ask_of;
using ::testing::HasSubstr;
using testing::is_left;
using testing::kPlenty;
using testing::listen;
using testing::member;
using testing::Rank;

// Ranks of a node: rank 0 is a control plane, rank 1 has only a socket, and rank 2 does not exist.
class NodePostTest : public ::testing::Test {
 protected:
  NodePostTest() {
    std::vector<transport::Member> members = {
        member(0, "a", {}), member(1, "a", listener_), member(2, "a", {}), member(3, "b", {})};
    for (transport::Member& each : members) {
      each.endpoint = fmt::format("unisono-test-{}-{}", ::getpid(), each.job_rank);
    }
    name_ = post_name(members[0].endpoint);
    other_ = net::bind_unix_datagram(post_name(members[1].endpoint));
    rank_ = std::make_unique<Rank>(
        as_rank(0, members), -1, NodeContact{.post = net::bind_unix_datagram(name_), .key = key_});
  }

  void send(std::int32_t rank, std::span<const std::byte> frame) const {
    std::vector<std::byte> envelope(key_.begin(), key_.end());
    const auto sender = std::as_bytes(std::span(&rank, 1));
    envelope.insert(envelope.end(), sender.begin(), sender.end());
    ASSERT_EQ(net::send_datagram(other_.get(), name_, envelope, frame), 0);
  }

  [[nodiscard]] transport::Frame receive() const {
    EXPECT_TRUE(net::wait_for(other_.get(), POLLIN, Deadline::after(kPlenty)));
    std::array<std::byte, 8192> bytes{};
    const auto datagram = net::receive_datagram(other_.get(), bytes);
    EXPECT_TRUE(datagram.has_value());
    constexpr std::size_t kEnvelope = sizeof(shm::NodeMemory::Key) + sizeof(std::int32_t);
    return transport::decode(std::span(bytes).subspan<kEnvelope, transport::kFrameBytes>()).value();
  }

  Fd listener_ = listen();  // No rank may send a query to this listener.
  shm::NodeMemory::Key key_{std::byte{7}};
  std::string name_;
  Fd other_;
  std::unique_ptr<Rank> rank_;
};

TEST_F(NodePostTest, QuestionsAndAnswersGoByTheSocketsOfTheNode) {
  std::thread answering([&] {
    const transport::Frame frame = receive();
    EXPECT_EQ(frame.kind, transport::FrameKind::kAsk);
    send(1, transport::encode_leave(5, {}, frame.question));
  });
  EXPECT_TRUE(is_left(rank_->control().ask_all({ask_of(1)}, kPlenty).front()));
  answering.join();
  send(1,
       transport::encode(transport::Frame{.kind = transport::FrameKind::kAsk, .question = 9}, {}));
  const transport::Frame answer = receive();
  EXPECT_EQ(answer.kind, transport::FrameKind::kLeave);
  EXPECT_EQ(answer.question, 9U);
}

TEST_F(NodePostTest, WhoseSocketIsNotThereIsGone) {
  for (const int rank : {2, 1}) {
    other_.reset();
    const Answer answer = rank_->control().ask_all({ask_of(rank)}, kPlenty).front();
    ASSERT_TRUE(answer.problem);
    EXPECT_EQ(answer.problem->code(), ErrorCode::kPeerLost);
    EXPECT_THAT(answer.problem->what(), HasSubstr(fmt::format("rank {}", rank)));
  }
}

TEST_F(NodePostTest, WhoSaysWhatNoRankSaysIsHeardNoMore) {
  send(1, transport::encode({.kind = transport::FrameKind::kAskWait, .question = 1}));
  EXPECT_FALSE(rank_->has_ended.wait_until(Deadline::after(kPlenty)));
  EXPECT_EQ(rank_->ended_rank, 1);
  EXPECT_EQ(rank_->end, ControlLink::End::kJunk);
}

TEST_F(NodePostTest, StrangersAreNobody) {
  const shm::NodeMemory::Key key = key_;
  key_[0] = std::byte{8};
  send(1, transport::encode_leave(5));
  key_ = key;
  send(3, transport::encode_leave(5));  // A rank of another node.
  send(-1, transport::encode_leave(5));
  send(0, transport::encode_leave(5));  // The rank itself.
  ASSERT_EQ(net::send_datagram(other_.get(), name_, std::span(key_).first(3)), 0);
  send(1, transport::encode_leave(5));
  EXPECT_FALSE(rank_->has_heard.wait_until(Deadline::after(kPlenty)));
  EXPECT_EQ(rank_->n_heard, 1);
  EXPECT_EQ(rank_->ended_rank, -1);
}

TEST_F(NodePostTest, OfAProcessThatEndedTheLastWordsAreHeard) {
  InterruptiblePause is_noted;
  rank_->loop().post([&] {
    send(1, transport::encode_leave(5));
    rank_->control().note_process_end(1);
    is_noted.end();
  });
  EXPECT_FALSE(is_noted.wait_until(Deadline::after(kPlenty)));
  EXPECT_EQ(rank_->n_heard, 1);
  EXPECT_EQ(rank_->end, ControlLink::End::kClosed);
}

TEST_F(NodePostTest, AnEndThatAnotherRankHasSeenIsHeardOnce) {
  for (int i = 0; i < 2; ++i) {
    send(1,
         transport::encode(transport::Frame{.kind = transport::FrameKind::kEnded, .sequence = 2},
                           {}));
  }
  EXPECT_FALSE(rank_->has_ended.wait_until(Deadline::after(kPlenty)));
  EXPECT_EQ(rank_->ended_rank, 2);
  EXPECT_EQ(rank_->end, ControlLink::End::kClosed);
  EXPECT_EQ(rank_->n_ended, 1);
}

// The kernel queues ten datagrams for a socket.
TEST_F(NodePostTest, WhatAFullQueueDoesNotTakeIsSentLaterInOrder) {
  constexpr int kFrames = 100;
  for (int i = 0; i < kFrames; ++i) {
    rank_->control().tell({1}, transport::encode_leave(static_cast<std::uint32_t>(i)), {});
  }
  for (int i = 0; i < kFrames; ++i) {
    EXPECT_EQ(receive().sequence, static_cast<std::uint64_t>(i));
  }
}

}  // namespace

namespace {

using shm::SeatState;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::chrono::seconds kPatience{20};

// A node with listening sockets of this process as ranks.
class NodeWatchTest : public ::testing::Test {
 protected:
  explicit NodeWatchTest(std::size_t n_ranks = 6)
      : memory_(shm::NodeMemory::create(std::vector<std::int64_t>(n_ranks, 1 << 20))) {
    for (std::size_t rank = 0; rank < n_ranks; ++rank) {
      const std::string name =
          "unisono-watch-test-" + std::to_string(::getpid()) + "-" + std::to_string(rank);
      listeners_.push_back(net::listen_unix_abstract(name));
      transport::Member member;
      member.job_rank = static_cast<int>(rank);
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
  transport::RankTable roster_;
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

// A child created by clone() keeps the rank's socket open.
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
}  // namespace unisono::peers
