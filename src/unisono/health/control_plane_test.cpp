#include "unisono/health/control_plane.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <latch>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/interruptible_pause.h"
#include "unisono/base/log.h"
#include "unisono/health/acceptor.h"
#include "unisono/health/control_link.h"
#include "unisono/health/node_post.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/shm/node_memory.h"

namespace unisono::health {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kSecret = "secret";
constexpr milliseconds kPlenty{20'000};
constexpr milliseconds kShort{200};

Fd listen() {
  return net::listen_tcp(net::Address::parse("127.0.0.1", 0).value());
}

rendezvous::Member member(int rank, const std::string& node, const Fd& listener) {
  return {.rank = rank,
          .world_size = 3,
          .host = "host",
          .pid = 1,
          .node = node,
          .address = "127.0.0.1",
          .port = listener.is_open() ? net::local_address(listener.get()).port() : std::uint16_t{1},
          .endpoint = ""};
}

rendezvous::Roster as_rank(int rank, std::vector<rendezvous::Member> members) {
  return {.rank = rank, .job = "job", .members = std::move(members)};
}

Question ask_of(int rank) {
  return {.rank = rank, .frame = {.kind = transport::FrameKind::kAsk, .sequence = 5}};
}

// A rank's control plane, with a thread and an acceptor as a watcher has them. It answers each
// question that it has left the group.
class Rank {
 public:
  Rank(rendezvous::Roster roster, int listener, NodeContact contact = {})
      : roster_(std::move(roster)),
        control_(loop_,
                 roster_,
                 kSecret,
                 std::move(contact),
                 {.frame = [this](const Heard& heard) { return hear(heard); },
                  .end =
                      [this](int rank, ControlLink::End how) {
                        ++n_ended;
                        ended_rank = rank;
                        end = how;
                        has_ended.end();
                      }},
                 Logger("test", LogLevel::kError)) {
    if (listener >= 0) {
      acceptor_ = std::make_unique<Acceptor>(
          *loop_,
          listener,
          net::HelloInfo{.job = "job", .purpose = "data", .rank = roster_.rank},
          kSecret,
          roster_.world_size(),
          Logger("test", LogLevel::kError),
          [this](const net::HelloInfo& peer, Fd socket, const auto& shortage) {
            ++n_accepted;
            control_.adopt(peer.rank, std::move(socket), shortage.has_value() || is_short);
          });
    }
    thread_ = std::thread([this] { loop_->run(); });
  }

  ~Rank() {
    loop_->stop();
    thread_.join();
  }

  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  Rank(Rank&&) = delete;
  Rank& operator=(Rank&&) = delete;

  ControlPlane& control() { return control_; }

  net::EventLoop& loop() { return *loop_; }

  std::atomic<int> n_accepted = 0;
  std::atomic<bool> is_short = false;
  std::atomic<int> n_heard = 0;
  InterruptiblePause has_heard;
  std::atomic<int> ended_rank = -1;
  std::atomic<int> n_ended = 0;
  std::atomic<ControlLink::End> end{};
  InterruptiblePause has_ended;

 private:
  bool hear(const Heard& heard) {
    ++n_heard;
    has_heard.end();
    if (heard.frame.kind == transport::FrameKind::kAsk) {
      heard.reply(transport::encode_leave(5, {}, heard.frame.question));
    }
    return heard.frame.kind != transport::FrameKind::kAskWait;
  }

  rendezvous::Roster roster_;
  std::shared_ptr<net::EventLoop> loop_ = std::make_shared<net::EventLoop>();
  ControlPlane control_;
  std::unique_ptr<Acceptor> acceptor_;
  std::thread thread_;
};

// Three ranks, each of a node of its own.
class ControlPlaneTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Rank> make(int rank) const {
    return std::make_unique<Rank>(as_rank(rank, members_),
                                  listeners_[static_cast<std::size_t>(rank)].get());
  }

  // Says the hello as rank 1, and hears a question.
  [[nodiscard]] Fd let_in(std::uint32_t& question) const {
    const Deadline deadline = Deadline::after(kPlenty);
    EXPECT_TRUE(net::wait_for(listeners_[1].get(), POLLIN, deadline));
    Fd socket = net::accept_connection(listeners_[1].get()).fd;
    (void)net::accept_hello(
        socket.get(), kSecret, {.job = "job", .purpose = "data", .rank = 1}, deadline);
    EXPECT_TRUE(transport::welcome(socket.get()));
    transport::FrameBytes bytes{};
    net::read_exact(socket.get(), bytes, deadline, "rank 0");
    question = transport::decode(bytes).value().question;
    return socket;
  }

  std::array<Fd, 3> listeners_ = {listen(), listen(), listen()};
  std::vector<rendezvous::Member> members_ = {
      member(0, "a", listeners_[0]), member(1, "b", listeners_[1]), member(2, "c", listeners_[2])};
};

bool is_left(const Answer& answer) {
  return answer.frame && answer.frame->kind == transport::FrameKind::kLeave;
}

TEST_F(ControlPlaneTest, AllQuestionsToARankGoByOneConnection) {
  const auto asking = make(0);
  const auto asked = make(1);
  for (int i = 0; i < 10; ++i) {
    for (const Answer& answer : asking->control().ask_all({ask_of(1), ask_of(1)}, kPlenty)) {
      EXPECT_TRUE(is_left(answer));
    }
  }
  EXPECT_EQ(asked->n_accepted, 1);
  // And those of the other side, too.
  EXPECT_TRUE(is_left(asked->control().ask_all({ask_of(0)}, kPlenty).front()));
  EXPECT_EQ(asking->n_accepted, 0);
}

TEST_F(ControlPlaneTest, BothMayOpenOneAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const auto one = make(0);
    const auto two = make(1);
    std::latch start(2);
    const auto ask = [&](Rank& rank, int other) {
      start.arrive_and_wait();
      for (int i = 0; i < 3; ++i) {
        EXPECT_TRUE(is_left(rank.control().ask_all({ask_of(other)}, kPlenty).front()));
      }
    };
    std::thread beside([&] { ask(*two, 0); });
    ask(*one, 1);
    beside.join();
    EXPECT_LE(one->n_accepted, 1);
    EXPECT_LE(two->n_accepted, 1);
  }
}

TEST_F(ControlPlaneTest, ARankThatRefusesIsGone) {
  const auto asking = make(0);
  const auto other = make(2);
  listeners_[1].reset();
  const std::vector<Answer> answers = asking->control().ask_all({ask_of(1), ask_of(2)}, kPlenty);
  ASSERT_TRUE(answers[0].problem);
  EXPECT_EQ(answers[0].problem->code(), ErrorCode::kPeerLost);
  EXPECT_TRUE(is_left(answers[1]));
}

// It listens, but its process does nothing.
TEST_F(ControlPlaneTest, AStoppedRankKeepsNobodyWaiting) {
  const auto asking = make(0);
  const auto other = make(2);
  const Deadline until = Deadline::after(kShort);
  const std::vector<Answer> answers = asking->control().ask_all({ask_of(1), ask_of(2)}, kShort);
  EXPECT_TRUE(until.has_passed());
  EXPECT_FALSE(answers[0].frame || answers[0].problem);
  EXPECT_TRUE(is_left(answers[1]));
  const Deadline told = Deadline::after(kPlenty);
  asking->control().tell({1}, transport::encode_leave(5), kShort);
  EXPECT_FALSE(told.has_passed());
  EXPECT_TRUE(is_left(asking->control().ask_all({ask_of(2)}, kPlenty).front()));
  // It goes on.
  const auto asked = make(1);
  EXPECT_TRUE(is_left(asking->control().ask_all({ask_of(1)}, kPlenty).front()));
}

TEST_F(ControlPlaneTest, ARankThatDiesInMidAnswerIsGone) {
  const auto asking = make(0);
  std::thread dying([&] {
    std::uint32_t question = 0;
    const Fd socket = let_in(question);
    const auto answer = transport::encode_abort(5, Error(ErrorCode::kTimeout, "why"), question);
    (void)net::write_some(socket.get(), std::span(answer).first(answer.size() - 1));
  });
  const Answer answer = asking->control().ask_all({ask_of(1)}, kPlenty).front();
  dying.join();
  EXPECT_FALSE(answer.frame);
  ASSERT_TRUE(answer.problem);
  EXPECT_EQ(answer.problem->code(), ErrorCode::kPeerLost);
}

TEST_F(ControlPlaneTest, BytesThatAreNoFrameEndTheConnectionAndTheNextQuestionOpensAnother) {
  const auto asking = make(0);
  std::thread babbling([&] {
    std::uint32_t question = 0;
    const Fd socket = let_in(question);
    (void)net::write_some(socket.get(), std::vector<std::byte>(100, std::byte{0x55}));
    net::discard_until_closed(socket.get(), Deadline::after(kPlenty));
  });
  EXPECT_FALSE(asking->control().ask_all({ask_of(1)}, kPlenty).front().frame);
  babbling.join();
  const auto asked = make(1);
  EXPECT_TRUE(is_left(asking->control().ask_all({ask_of(1)}, kPlenty).front()));
}

TEST_F(ControlPlaneTest, AnAnswerToAQuestionThatNobodyAskedIsNone) {
  const auto asking = make(0);
  std::thread strange([&] {
    std::uint32_t question = 0;
    const Fd socket = let_in(question);
    (void)net::write_some(socket.get(), transport::encode_leave(5, {}, question + 1));
    net::discard_until_closed(socket.get(), Deadline::after(milliseconds(500)));
  });
  const Answer answer = asking->control().ask_all({ask_of(1)}, kShort).front();
  EXPECT_FALSE(answer.frame || answer.problem);
  strange.join();
}

TEST_F(ControlPlaneTest, NobodyAnswersForAnother) {
  const auto asking = make(0);
  std::thread strange([&] {
    std::uint32_t question = 0;
    const Fd asked = let_in(question);
    const Deadline deadline = Deadline::after(kPlenty);
    const Fd socket = net::connect_tcp(net::local_address(listeners_[0].get()), deadline);
    (void)net::connect_hello(
        socket.get(), kSecret, {.job = "job", .purpose = "control", .rank = 2}, deadline);
    (void)net::write_some(socket.get(), transport::encode_leave(5, {}, question));
    net::discard_until_closed(asked.get(), Deadline::after(milliseconds(500)));
  });
  const Answer answer = asking->control().ask_all({ask_of(1)}, kShort).front();
  EXPECT_FALSE(answer.frame || answer.problem);
  strange.join();
}

TEST_F(ControlPlaneTest, WhoDoesNotWaitHearsThatARankIsSilent) {
  const auto asking = make(0);
  InterruptiblePause is_over;
  asking->control().ask(ask_of(1), kShort, [&](const Answer& answer) {
    EXPECT_FALSE(answer.frame || answer.problem);
    is_over.end();
  });
  EXPECT_FALSE(is_over.wait_until(Deadline::after(kPlenty)));
}

TEST_F(ControlPlaneTest, NewsAreOutBeforeTheTellingRankEnds) {
  const auto hearing = make(1);
  for (int i = 0; i < 20; ++i) {
    const auto telling = make(0);
    telling->control().tell(
        {1}, transport::encode_abort(5, Error(ErrorCode::kTimeout, "why")), kPlenty);
  }
  const Deadline deadline = Deadline::after(kPlenty);
  while (hearing->n_heard < 20 && !deadline.has_passed()) {
    std::this_thread::yield();
  }
  EXPECT_EQ(hearing->n_heard, 20);
}

TEST_F(ControlPlaneTest, OnItsOwnThreadNobodyWaitsForNewsToBeOut) {
  const auto telling = make(0);
  InterruptiblePause is_told;
  telling->loop().post([&] {
    telling->control().tell({1}, transport::encode_leave(5), kPlenty);  // Nobody lets it in.
    is_told.end();
  });
  EXPECT_FALSE(is_told.wait_until(Deadline::after(kPlenty / 2)));
}

TEST_F(ControlPlaneTest, AConnectionThatCantBeKeptServesAQuestionAndCloses) {
  const auto asking = make(0);
  const auto asked = make(1);
  asked->is_short = true;
  EXPECT_TRUE(is_left(asking->control().ask_all({ask_of(1)}, kPlenty).front()));
  const Deadline deadline = Deadline::after(kPlenty);
  while (asked->n_accepted < 2 && !deadline.has_passed()) {
    (void)asking->control().ask_all({ask_of(1)}, kPlenty);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_EQ(asked->n_accepted, 2);
}

// A rank that can't keep a connection closes it, and goes on by the other one.
TEST_F(ControlPlaneTest, TheEndOfAConnectionEndsTheQuestionsThatWentByIt) {
  const Deadline deadline = Deadline::after(kPlenty);
  std::array<InterruptiblePause, 2> is_over;
  std::array<Answer, 2> answers;
  const auto asking = make(0);
  const auto ask = [&](std::size_t i) {
    asking->control().ask(ask_of(1), kPlenty, [&, i](const Answer& answer) {
      answers[i] = answer;
      is_over[i].end();
    });
  };
  ask(0);  // By a connection that nobody lets in yet.
  ASSERT_TRUE(net::wait_for(listeners_[1].get(), POLLIN, deadline));
  const Fd theirs = net::connect_tcp(net::local_address(listeners_[0].get()), deadline);
  (void)net::connect_hello(
      theirs.get(), kSecret, {.job = "job", .purpose = "control", .rank = 1}, deadline);
  std::array<std::byte, 1> welcome{};
  net::read_exact(theirs.get(), welcome, deadline, "rank 0");
  ask(1);
  transport::FrameBytes asked{};
  net::read_exact(theirs.get(), asked, deadline, "rank 0");
  std::uint32_t first = 0;
  let_in(first).reset();
  EXPECT_FALSE(is_over[0].wait_until(deadline));
  EXPECT_TRUE(answers[0].problem);
  net::write_all(theirs.get(),
                 transport::encode_leave(5, {}, transport::decode(asked).value().question),
                 deadline,
                 "rank 0");
  EXPECT_FALSE(is_over[1].wait_until(deadline));
  EXPECT_TRUE(is_left(answers[1]));
}

TEST_F(ControlPlaneTest, AStrangerIsNobody) {
  const auto asked = make(1);
  members_[1].port = members_[0].port;  // Who answers there is another rank.
  const auto other = make(0);
  Rank asking(as_rank(2, members_), listeners_[2].get());
  const Answer answer = asking.control().ask_all({ask_of(1)}, kPlenty).front();
  ASSERT_TRUE(answer.problem);
  EXPECT_EQ(answer.problem->code(), ErrorCode::kMismatch);
}

// Ranks of a node: rank 0 is a control plane, of rank 1 there is the socket, of rank 2 nothing.
class NodeControlTest : public ::testing::Test {
 protected:
  NodeControlTest() {
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

TEST_F(NodeControlTest, QuestionsAndAnswersGoByTheSocketsOfTheNode) {
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

TEST_F(NodeControlTest, WhoseSocketIsNotThereIsGone) {
  for (const int rank : {2, 1}) {
    other_.reset();
    const Answer answer = rank_->control().ask_all({ask_of(rank)}, kPlenty).front();
    ASSERT_TRUE(answer.problem);
    EXPECT_EQ(answer.problem->code(), ErrorCode::kPeerLost);
    EXPECT_THAT(answer.problem->what(), HasSubstr(fmt::format("rank {}", rank)));
  }
}

TEST_F(NodeControlTest, WhoSaysWhatNoRankSaysIsHeardNoMore) {
  send(1, transport::encode({.kind = transport::FrameKind::kAskWait, .question = 1}));
  EXPECT_FALSE(rank_->has_ended.wait_until(Deadline::after(kPlenty)));
  EXPECT_EQ(rank_->ended_rank, 1);
  EXPECT_EQ(rank_->end, ControlLink::End::kJunk);
}

TEST_F(NodeControlTest, StrangersAreNobody) {
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

TEST_F(NodeControlTest, OfAProcessThatEndedTheLastWordsAreHeard) {
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

TEST_F(NodeControlTest, AnEndThatAnotherRankHasSeenIsHeardOnce) {
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
TEST_F(NodeControlTest, WhatAFullQueueDoesNotTakeIsSentLaterInOrder) {
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
