#include "unisono/peers/peer_monitor.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <gtest/gtest.h>

#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"

namespace unisono::peers {
namespace {

using Kind = transport::FrameKind;

constexpr std::uint32_t kNumber = 5;
constexpr int kPeer = 3;

class AnswersTest : public ::testing::Test {
 protected:
  bool hear(const transport::Frame& frame, std::span<const std::byte> payload = {}) {
    return answer({.rank = kPeer,
                   .frame = frame,
                   .payload = payload,
                   .reply =
                       [this](const std::vector<std::byte>& bytes) {
                         ++n_replies_;
                         reply_ =
                             transport::decode(std::span(bytes).first<transport::kFrameBytes>());
                       }},
                  groups_,
                  stacks_);
  }

  GroupRegistry groups_;
  StackDump stacks_{base::Logger("test", LogLevel::kError)};
  std::optional<transport::Frame> reply_;
  int n_replies_ = 0;
};

TEST_F(AnswersTest, OfAGroupThatIsNotKnownThisRankHasLeftIt) {
  EXPECT_TRUE(hear({.kind = Kind::kAsk, .sequence = kNumber, .question = 9}));
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->kind, Kind::kLeave);
  EXPECT_EQ(reply_->question, 9U);
  // Earlier data of this rank may still be in transit.
  const transport::Departure departure = transport::decode_departure(*reply_);
  EXPECT_FALSE(departure.from_operations || departure.from_messages);
}

TEST_F(AnswersTest, OfAGroupThatWasLeftNothingIsOnItsWayFromARankThatWasNotMet) {
  groups_.end(kNumber, {.by_operations = {}, .by_messages = {kPeer}});
  EXPECT_TRUE(hear({.kind = Kind::kAsk, .sequence = kNumber, .question = 9}));
  ASSERT_TRUE(reply_);
  const transport::Departure departure = transport::decode_departure(*reply_);
  EXPECT_TRUE(departure.from_operations);
  EXPECT_FALSE(departure.from_messages);
}

TEST_F(AnswersTest, OfAGroupThatWasLeftAsItHadFailedTheReasonIsKnown) {
  groups_.end(kNumber, {}, Error(ErrorCode::kMismatch, "why"));
  EXPECT_TRUE(hear({.kind = Kind::kAsk, .sequence = kNumber, .question = 9}));
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->kind, Kind::kAbort);
  EXPECT_EQ(reply_->question, 9U);
  EXPECT_EQ(transport::decode_abort(*reply_, {}).code(), ErrorCode::kMismatch);
}

TEST_F(AnswersTest, OfAGroupThatIsExpectedTheAnswerWaitsUntilItIsKnown) {
  groups_.expect(kNumber);
  EXPECT_TRUE(hear({.kind = Kind::kAsk, .sequence = kNumber, .question = 9}));
  EXPECT_EQ(n_replies_, 0);
  groups_.forget(kNumber);
  EXPECT_EQ(n_replies_, 1);
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->kind, Kind::kLeave);
}

TEST_F(AnswersTest, WhoKnowsNoGroupIsStuckInNone) {
  EXPECT_TRUE(hear({.kind = Kind::kAskWait, .sequence = kNumber, .question = 9},
                   transport::encode({.id = {.group = kNumber}, .rank = kPeer, .late = {}})));
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->kind, Kind::kWait);
  EXPECT_EQ(reply_->n_bytes, 0U);
}

TEST_F(AnswersTest, AVerdictIsHeardWhereverItGoes) {
  for (const Kind kind : {Kind::kDeadlock, Kind::kDeadlockCommit}) {
    reply_.reset();
    EXPECT_TRUE(hear({.kind = kind, .sequence = kNumber, .question = 9}));
    ASSERT_TRUE(reply_);
    EXPECT_EQ(reply_->kind, Kind::kAck);
  }
}

TEST_F(AnswersTest, NewsOfAGroupThatIsNotKnownAreNoNews) {
  EXPECT_TRUE(hear({.kind = Kind::kAbort, .sequence = kNumber}));
  EXPECT_EQ(n_replies_, 0);
}

TEST_F(AnswersTest, AnswersAreNoQuestions) {
  for (const Kind kind : {Kind::kLeave, Kind::kRankProgress, Kind::kWait, Kind::kAck}) {
    EXPECT_FALSE(hear({.kind = kind, .sequence = kNumber, .question = 9}));
  }
}

}  // namespace
}  // namespace unisono::peers
