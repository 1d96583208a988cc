#include "unisono/store/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/bytes.h"
#include "unisono/store/testing/take_replies.h"

namespace unisono::store {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::take_replies;

std::string text(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string reply_of(const std::string& value) {
  ByteWriter writer;
  writer.put_string(value);
  return text(writer.bytes());
}

const std::string kStop("\0", 1);
const std::string kCanceled("\1", 1);

ByteWriter validate() {
  ByteWriter writer = begin(Opcode::kValidate);
  writer.put(kValidateMagic);
  return writer;
}

class SessionTest : public ::testing::Test {
 protected:
  std::unique_ptr<Session> admitted(const Limits& limits = {}) {
    auto session = std::make_unique<Session>(next_id_++, map_, "", limits);
    session->feed(validate().bytes());
    EXPECT_TRUE(session->is_admitted());
    return session;
  }

  // Wakes waiting sessions as a server does. Only `waiter` can be waiting.
  void settle(Session& waiter) {
    while (!map_.take_woken().empty()) {
      waiter.wake();
    }
  }

  static std::string answer(Session& session, const ByteWriter& request) {
    session.feed(request.bytes());
    return text(take_replies(session));
  }

  static std::vector<std::string> keys(const std::string& key) { return {key}; }

  StoreMap map_;
  ClientId next_id_ = 1;
};

TEST_F(SessionTest, RequestsAreAnsweredHoweverTheyAreCut) {
  const auto session = admitted();
  std::string answers;
  for (const std::byte byte : begin(Opcode::kSet, "k", "value").bytes()) {
    session->feed(std::span(&byte, 1));
  }
  for (const std::byte byte : begin(Opcode::kGet, "k").bytes()) {
    EXPECT_THAT(text(take_replies(*session)), IsEmpty());
    session->feed(std::span(&byte, 1));
  }
  EXPECT_EQ(text(take_replies(*session)), reply_of("value"));
}

TEST_F(SessionTest, AMissingKeyIsEmpty) {
  EXPECT_EQ(answer(*admitted(), begin(Opcode::kGet, "k")), reply_of(""));
}

TEST_F(SessionTest, RequestsBehindAWaitAreAnsweredAfterIt) {
  const auto waiter = admitted();
  const auto other = admitted();
  EXPECT_THAT(answer(*waiter, begin(Opcode::kWait, keys("k"))), IsEmpty());
  EXPECT_THAT(answer(*waiter, begin(Opcode::kGet, "k")), IsEmpty());
  EXPECT_THAT(answer(*waiter, begin(Opcode::kWait, keys("k2"))), IsEmpty());
  EXPECT_THAT(answer(*waiter, begin(Opcode::kGet, "k2")), IsEmpty());
  (void)answer(*other, begin(Opcode::kSet, "k", "1"));
  settle(*waiter);
  EXPECT_EQ(text(take_replies(*waiter)), kStop + reply_of("1"));
  (void)answer(*other, begin(Opcode::kSet, "k2", "2"));
  settle(*waiter);
  EXPECT_EQ(text(take_replies(*waiter)), kStop + reply_of("2"));
}

TEST_F(SessionTest, ACancellationOvertakesWhatStandsBehindTheWait) {
  const auto waiter = admitted();
  const auto other = admitted();
  (void)answer(*waiter, begin(Opcode::kWait, keys("k")));
  (void)answer(*waiter, begin(Opcode::kGet, "k"));
  EXPECT_EQ(answer(*waiter, begin(Opcode::kCancelWait)), kCanceled + reply_of(""));
  (void)answer(*other, begin(Opcode::kSet, "k", "1"));
  EXPECT_THAT(map_.take_woken(), IsEmpty());
  EXPECT_EQ(answer(*waiter, begin(Opcode::kCancelWait)), kCanceled) << "nothing to cancel";
}

TEST_F(SessionTest, AClientThatLeavesWaitsNoMore) {
  auto waiter = admitted();
  (void)answer(*waiter, begin(Opcode::kWait, keys("k")));
  waiter.reset();
  map_.set("/k", "");
  EXPECT_THAT(map_.take_woken(), IsEmpty());
}

TEST_F(SessionTest, OurClientsAreToldTheVersionAndTheJob) {
  for (const char* job : {"", "STEP=7"}) {
    Session session(next_id_++, map_, "", {}, nullptr, job);
    session.feed(validate().bytes());
    ByteWriter told;
    told.put(std::uint32_t{net::kProtocolVersion});
    told.put_string(job);
    EXPECT_EQ(answer(session, begin(Opcode::kVersion)), text(told.bytes()));
  }
}

TEST_F(SessionTest, NewsFollowsTheAnswerToAWatch) {
  const auto session = admitted();
  EXPECT_EQ(answer(*session, begin(Opcode::kWatch, "k")), std::string("\0", 1) + reply_of("/k"));
  map_.set("/k", "new");
  const std::vector<StoreMap::News> news = map_.take_news();
  ASSERT_EQ(news.size(), 1U);
  session->notify(*news[0].change);
  EXPECT_EQ(text(take_replies(*session)),
            "\1" + reply_of("/k") + std::string("\0\1", 2) + reply_of("new"));
  EXPECT_THAT(answer(*session, begin(Opcode::kUnwatch, "k")), IsEmpty());
  map_.set("/k", "newer");
  EXPECT_THAT(map_.take_news(), IsEmpty());
}

TEST_F(SessionTest, WatchesAreLimited) {
  const auto session = admitted({.max_watches = 2});
  session->feed(begin(Opcode::kWatch, "a").bytes());
  session->feed(begin(Opcode::kWatch, "b").bytes());
  session->feed(begin(Opcode::kWatch, "a").bytes());
  EXPECT_EQ(session->problem(), "") << "one of them again";
  session->feed(begin(Opcode::kWatch, "c").bytes());
  EXPECT_THAT(session->problem(), HasSubstr("watch: \"c\" besides the 2 keys"));
}

TEST_F(SessionTest, AClientThatLeavesWatchesNoMore) {
  admitted()->feed(begin(Opcode::kWatch, "k").bytes());
  map_.set("/k", "new");
  EXPECT_THAT(map_.take_news(), IsEmpty());
}

TEST_F(SessionTest, OnlyClientsThatBeginRightAreAdmitted) {
  const std::vector<std::string> openings{"GET / HTTP/1.1",
                                          std::string("\x16\x03\x01", 3),
                                          std::string("\0\1\2\3\4", 5),
                                          std::string("\x07", 1),
                                          std::string("\xF5unisonX\x01\x00\x00\x00", 12)};
  for (const std::string& opening : openings) {
    Session session(next_id_++, map_, "", {});
    session.feed(std::as_bytes(std::span(opening)));
    EXPECT_FALSE(session.is_admitted());
    EXPECT_NE(session.problem(), "") << opening;
    session.feed(begin(Opcode::kSet, "k", "junk").bytes());
  }
  EXPECT_EQ(map_.n_keys(), 0U);
}

TEST_F(SessionTest, WithASecretPlainClientsAreNotServed) {
  Session session(1, map_, "secret", {});
  session.feed(validate().bytes());
  session.feed(begin(Opcode::kSet, "k", "1").bytes());
  EXPECT_FALSE(session.is_admitted());
  EXPECT_THAT(session.problem(), HasSubstr("plain client"));
  EXPECT_THAT(session.problem(), HasSubstr("--allow-plain-clients"));
  EXPECT_EQ(map_.n_keys(), 0U);
}

// Sends the hello to `session` as a client with `secret`, and a request together with the proof.
void say_hello(Session& session, const std::string& secret, const std::string& purpose) {
  net::Hello hello(net::Hello::Side::kClient, secret, {.job = "", .purpose = purpose});
  session.feed(hello.take_output());
  (void)hello.feed(take_replies(session));
  std::vector<std::byte> bytes = hello.take_output();
  const std::vector<std::byte> request = begin(Opcode::kSet, "k", "1").bytes();
  bytes.insert(bytes.end(), request.begin(), request.end());
  session.feed(bytes);
}

TEST_F(SessionTest, TheHelloAdmits) {
  Session session(1, map_, "secret", {});
  say_hello(session, "secret", "store");
  EXPECT_TRUE(session.is_admitted());
  EXPECT_EQ(session.problem(), "");
  EXPECT_EQ(map_.n_keys(), 1U);
}

TEST_F(SessionTest, AHelloWithAnotherSecretOrPurposeDoesNot) {
  for (const auto& [secret, purpose] : {std::pair("guess", "store"), {"secret", "data"}}) {
    Session session(next_id_++, map_, "secret", {});
    say_hello(session, secret, purpose);
    EXPECT_NE(session.problem(), "");
    EXPECT_EQ(map_.n_keys(), 0U);
  }
}

TEST_F(SessionTest, ABadSumOrBarrierEndsTheConnection) {
  map_.set("/k", "text");
  const auto first = admitted();
  EXPECT_THAT(answer(*first, begin(Opcode::kAdd, "k", 1)), IsEmpty());
  EXPECT_EQ(first->problem(), "add: the value of \"k\" is not a decimal number: \"text\"");
  const auto second = admitted();
  EXPECT_THAT(answer(*second, begin(Opcode::kBarrier, "k", 1)), IsEmpty());
  EXPECT_EQ(second->problem(), "barrier: the value of \"k\" is not a decimal number: \"text\"");
}

std::string explained(ReplyKind kind, const std::string& rest = "") {
  return std::string(1, static_cast<char>(kind)) + rest;
}

TEST_F(SessionTest, WhoAsksForReasonsHasThemInThePlaceOfAnAnswer) {
  const auto session = admitted();
  EXPECT_THAT(answer(*session, begin(Opcode::kExplain)), IsEmpty());
  map_.set("/k", "text");
  EXPECT_EQ(answer(*session, begin(Opcode::kGet, "k")),
            explained(ReplyKind::kAnswer, reply_of("text")));
  const std::string refusal = " the value of \"k\" is not a decimal number: \"text\"";
  EXPECT_EQ(answer(*session, begin(Opcode::kAdd, "k", 1)),
            explained(ReplyKind::kRefusal, reply_of("add:" + refusal)));
  EXPECT_EQ(answer(*session, begin(Opcode::kBarrier, "k", 1)),
            explained(ReplyKind::kRefusal, reply_of("barrier:" + refusal)));
  EXPECT_EQ(session->problem(), "");
  (void)answer(*session, begin(Opcode::kWait, keys("never")));
  EXPECT_EQ(answer(*session, begin(Opcode::kCancelWait)), explained(ReplyKind::kAnswer, kCanceled));
  const std::string end = answer(*session, begin(Opcode::kSetAtEnd, "k", std::string(5000, 'x')));
  EXPECT_EQ(end, explained(ReplyKind::kEnd, reply_of(session->problem())));
  EXPECT_THAT(end, HasSubstr("set_at_end: a value of 5000 bytes for \"k\"; 4096 are allowed"));
}

TEST_F(SessionTest, WhoIsTurnedAwayIsHeardOutAndServedNothing) {
  for (const bool asks : {false, true}) {
    Session session(next_id_++, map_, "", {});
    session.turn_away("all are taken");
    session.feed(validate().bytes());
    EXPECT_FALSE(session.is_admitted());
    EXPECT_EQ(session.problem(), "");
    EXPECT_EQ(answer(session, asks ? begin(Opcode::kExplain) : begin(Opcode::kSet, "k", "1")),
              asks ? explained(ReplyKind::kEnd, reply_of("all are taken")) : "");
    EXPECT_EQ(session.problem(), "all are taken");
  }
  EXPECT_EQ(map_.n_keys(), 0U);
}

TEST_F(SessionTest, NothingIsServedAfterAProblem) {
  const auto session = admitted();
  std::vector<std::byte> bytes{std::byte{200}};
  const std::vector<std::byte> request = begin(Opcode::kSet, "k", "1").bytes();
  bytes.insert(bytes.end(), request.begin(), request.end());
  session->feed(bytes);
  session->feed(request);
  EXPECT_THAT(session->problem(), HasSubstr("request 200"));
  EXPECT_EQ(map_.n_keys(), 0U);
}

TEST_F(SessionTest, AppendsAreLimitedInTotal) {
  const auto session = admitted({.max_value_bytes = 10});
  (void)answer(*session, begin(Opcode::kAppend, "k", "123456"));
  (void)answer(*session, begin(Opcode::kAppend, "k", "1234"));
  EXPECT_EQ(session->problem(), "");
  (void)answer(*session, begin(Opcode::kAppend, "k", "1"));
  EXPECT_EQ(session->problem(), "append: \"k\" has 10 bytes and would get 1 more; 10 are allowed");
  EXPECT_EQ(map_.find("/k")->size(), 10U);
}

TEST_F(SessionTest, AFullStoreTakesNoMoreButStillAnswers) {
  const auto session = admitted({.max_store_bytes = 1000});
  (void)answer(*session, begin(Opcode::kSet, "k", std::string(700, 'x')));
  EXPECT_EQ(answer(*session, begin(Opcode::kGet, "k")), reply_of(std::string(700, 'x')));
  (void)answer(*session, begin(Opcode::kSet, "k2", std::string(700, 'x')));
  EXPECT_THAT(session->problem(), HasSubstr("full"));
  EXPECT_EQ(map_.n_keys(), 1U);
}

TEST_F(SessionTest, RepliesThatNobodyReadsAreLimited) {
  const auto session = admitted({.max_unread_bytes = 1000});
  (void)answer(*session, begin(Opcode::kSet, "k", std::string(300, 'x')));
  for (int i = 0; i < 3; ++i) {
    session->feed(begin(Opcode::kGet, "k").bytes());
  }
  EXPECT_EQ(session->problem(), "");
  session->feed(begin(Opcode::kGet, "k").bytes());
  EXPECT_THAT(session->problem(), HasSubstr("unread"));
}

TEST_F(SessionTest, NumbersThatNobodyReadsAreLimitedToo) {
  const auto session = admitted({.max_unread_bytes = 40});
  for (int i = 0; i < 5; ++i) {
    session->feed(begin(Opcode::kNumKeys).bytes());
  }
  EXPECT_EQ(session->problem(), "");
  session->feed(begin(Opcode::kNumKeys).bytes());
  EXPECT_THAT(session->problem(), HasSubstr("unread"));
  EXPECT_EQ(session->replies().n_bytes(), 40U);
}

TEST_F(SessionTest, NoReplyTakesThePlaceOfOneThatWasTooLarge) {
  const auto session = admitted({.max_unread_bytes = 100});
  map_.set("/large", std::string(200, 'x'));
  map_.set("/small", "1");
  const std::vector<std::string> both{"large", "small"};
  EXPECT_THAT(answer(*session, begin(Opcode::kMultiGet, both)), IsEmpty());
  EXPECT_THAT(session->problem(), HasSubstr("unread"));
}

TEST_F(SessionTest, AFullStoreTakesNoNewCounters) {
  const auto first = admitted({.max_store_bytes = 300});
  EXPECT_NE(answer(*first, begin(Opcode::kAdd, "n", 1)), "");
  (void)answer(*first, begin(Opcode::kSet, "k", std::string(50, 'x')));
  EXPECT_NE(answer(*first, begin(Opcode::kAdd, "n", 1)), "") << first->problem();
  EXPECT_EQ(answer(*first, begin(Opcode::kAdd, "n2", 1)), "");
  EXPECT_THAT(first->problem(), HasSubstr("full"));
  const auto second = admitted({.max_store_bytes = 300});
  EXPECT_EQ(answer(*second, begin(Opcode::kBarrier, "b", 2)), "");
  EXPECT_THAT(second->problem(), HasSubstr("full"));
  EXPECT_EQ(map_.n_keys(), 2U);
}

TEST_F(SessionTest, RequestsBehindAWaitAreLimited) {
  const auto session = admitted();
  session->feed(begin(Opcode::kWait, keys("k")).bytes());
  for (int i = 0; i < 64; ++i) {
    session->feed(begin(Opcode::kGet, "k").bytes());
  }
  EXPECT_EQ(session->problem(), "");
  session->feed(begin(Opcode::kGet, "k").bytes());
  EXPECT_THAT(session->problem(), HasSubstr("too many"));
}

}  // namespace
}  // namespace unisono::store
