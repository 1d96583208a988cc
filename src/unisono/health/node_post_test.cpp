#include "unisono/health/node_post.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/interruptible_pause.h"
#include "unisono/health/control_link.h"
#include "unisono/health/control_plane.h"
#include "unisono/health/testing/control_rank.h"
#include "unisono/net/io.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {
namespace {

using testing::as_rank;
using testing::ask_of;
using ::testing::HasSubstr;
using testing::is_left;
using testing::kPlenty;
using testing::listen;
using testing::member;
using testing::Rank;

// Ranks of a node: rank 0 is a control plane, of rank 1 there is the socket, of rank 2 nothing.
class NodePostTest : public ::testing::Test {
 protected:
  NodePostTest() {
    std::vector<rendezvous::Member> members = {
        member(0, "a", {}), member(1, "a", listener_), member(2, "a", {}), member(3, "b", {})};
    for (rendezvous::Member& each : members) {
      each.endpoint = fmt::format("unisono-test-{}-{}", ::getpid(), each.rank);
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

  Fd listener_ = listen();  // At which nobody is to ask.
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
  send(3, transport::encode_leave(5));  // Of another node.
  send(-1, transport::encode_leave(5));
  send(0, transport::encode_leave(5));  // Itself.
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

// The kernel holds ten datagrams for one socket.
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
}  // namespace unisono::health
