#include "unisono/peers/control_plane.h"

#include <poll.h>

#include <array>
#include <latch>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "unisono/base/thread.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/peers/testing/control_rank.h"
#include "unisono/transport/dial.h"

namespace unisono::peers {
namespace {

using std::chrono::milliseconds;
using testing::as_rank;
using testing::ask_of;
using testing::is_left;
using testing::kPlenty;
using testing::kSecret;
using testing::kShort;
using testing::listen;
using testing::member;
using testing::Rank;

// Three ranks on separate nodes.
class ControlPlaneTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<Rank> make(int rank) const {
    return std::make_unique<Rank>(as_rank(rank, members_),
                                  listeners_[static_cast<std::size_t>(rank)].get());
  }

  // Accepts a connection as rank 1 and receives a query.
  [[nodiscard]] Fd let_in(std::uint32_t& question) const {
    const Deadline deadline = Deadline::after(kPlenty);
    EXPECT_TRUE(net::wait_for(listeners_[1].get(), POLLIN, deadline));
    Fd socket = net::accept_connection(listeners_[1].get()).fd;
    (void)net::accept_hello(
        socket.get(), kSecret, {.job = "job", .purpose = "data", .rank = 1}, deadline);
    EXPECT_TRUE(transport::send_accept(socket.get()));
    transport::FrameBytes bytes{};
    net::read_exact(socket.get(), bytes, deadline, "rank 0");
    question = transport::decode(bytes).value().question;
    return socket;
  }

  std::array<Fd, 3> listeners_ = {listen(), listen(), listen()};
  std::vector<transport::Member> members_ = {
      member(0, "a", listeners_[0]), member(1, "b", listeners_[1]), member(2, "c", listeners_[2])};
};

TEST_F(ControlPlaneTest, AllQuestionsToARankGoByOneConnection) {
  const auto asking = make(0);
  const auto asked = make(1);
  for (int i = 0; i < 10; ++i) {
    for (const Answer& answer : asking->control().ask_all({ask_of(1), ask_of(1)}, kPlenty)) {
      EXPECT_TRUE(is_left(answer));
    }
  }
  EXPECT_EQ(asked->n_accepted, 1);
  // Queries of the other side use the same connection.
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

// The rank's listener exists, but its process is stopped.
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
  // The asking rank still works.
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
    // No process accepts the connection.
    telling->control().tell({1}, transport::encode_leave(5), kPlenty);
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

// A rank that can't keep a connection closes this connection and continues with the other
// connection.
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
  ask(0);  // Over a connection that has not been accepted yet.
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
  members_[1].address = members_[0].address;  // Another rank answers at this address.
  const auto other = make(0);
  Rank asking(as_rank(2, members_), listeners_[2].get());
  const Answer answer = asking.control().ask_all({ask_of(1)}, kPlenty).front();
  ASSERT_TRUE(answer.problem);
  EXPECT_EQ(answer.problem->code(), ErrorCode::kMismatch);
}

}  // namespace
}  // namespace unisono::peers
