#include "unisono/transport/frame.h"

#include <gtest/gtest.h>

#include "unisono/base/reduction.h"

namespace unisono::transport {
namespace {

Frame sample() {
  return {.kind = FrameKind::kData,
          .step = 7,
          .sequence = 1'000'000'007,
          .descriptor = {.kind = OperationKind::kAllReduce,
                         .dtype = DType::kFloat32,
                         .reduce = ReduceKind::kAvg,
                         .algorithm = Algorithm::kOneShot,
                         .root = -1,
                         .count = 12345},
          .n_bytes = 4096};
}

TEST(Frame, WhatIsEncodedIsDecoded) {
  const std::optional<Frame> frame = decode(encode(sample()));
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->kind, FrameKind::kData);
  EXPECT_EQ(frame->step, 7U);
  EXPECT_EQ(frame->sequence, 1'000'000'007U);
  EXPECT_EQ(frame->descriptor, sample().descriptor);
  EXPECT_EQ(frame->n_bytes, 4096U);
}

TEST(Frame, BytesOutOfStepAreRefused) {
  FrameBytes bytes = encode(sample());
  for (const std::size_t at : {0U, 1U, 2U, 3U, 4U, 5U, 6U, 7U, 52U, 55U}) {
    FrameBytes broken = bytes;
    broken[at] ^= std::byte{0xFF};
    EXPECT_FALSE(decode(broken).has_value()) << "byte " << at;
  }
}

TEST(Frame, DescriptorsOfWhatThereIsNotAreRefused) {
  constexpr std::size_t kDescriptor = 20;
  for (std::size_t at = kDescriptor; at < kDescriptor + 4; ++at) {
    FrameBytes bytes = encode(sample());
    bytes[at] = std::byte{15};
    EXPECT_FALSE(decode(bytes).has_value()) << "byte " << at;
  }
}

TEST(Frame, PayloadsOverTheLimitAreRefused) {
  Frame frame = sample();
  frame.n_bytes = kMaxPayloadBytes + 1;
  EXPECT_FALSE(decode(encode(frame)).has_value());
  frame.kind = FrameKind::kAbort;
  frame.n_bytes = kMaxAbortBytes + 1;
  EXPECT_FALSE(decode(encode(frame)).has_value());
  frame.kind = FrameKind::kLeave;
  frame.n_bytes = 1;
  EXPECT_FALSE(decode(encode(frame)).has_value());
}

TEST(Frame, ARankProgressIsReadAsItWasWritten) {
  const RankProgress rank_progress{.sequence = 7,
                                   .descriptor = sample().descriptor,
                                   .has_finished = true,
                                   .n_finished_on_node = 6,
                                   .refused = "why",
                                   .waits = "for whom",
                                   .elsewhere = "also"};
  const std::vector<std::byte> bytes = encode_rank_progress(rank_progress, 9);
  ASSERT_EQ(bytes.size(), kFrameBytes + 47);
  const auto frame = decode(std::span(bytes).first<kFrameBytes>());
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->kind, FrameKind::kRankProgress);
  EXPECT_EQ(frame->n_bytes, 47U);
  EXPECT_EQ(frame->question, 9U);
  const RankProgress read = decode_rank_progress(*frame, std::span(bytes).subspan(kFrameBytes));
  EXPECT_EQ(read.sequence, 7U);
  EXPECT_EQ(read.descriptor, rank_progress.descriptor);
  EXPECT_TRUE(read.has_finished);
  EXPECT_EQ(read.n_finished_on_node, 6U);
  EXPECT_EQ(read.refused, "why");
  EXPECT_EQ(read.waits, "for whom");
  EXPECT_EQ(read.elsewhere, "also");
}

TEST(Frame, ARankProgressWhoseTextIsShorterThanItSaysHasOnlyThoseBefore) {
  std::vector<std::byte> bytes = encode_rank_progress({.refused = "why", .waits = "whom"}, 1);
  const std::span<const std::byte> payload = std::span(bytes).subspan(kFrameBytes);
  bytes[kFrameBytes + 19] = std::byte{13};  // One more than the number of entries that follow.
  const RankProgress read = decode_rank_progress({}, payload);
  EXPECT_EQ(read.refused, "why");
  EXPECT_EQ(read.waits, "");
  EXPECT_EQ(read.elsewhere, "");
}

TEST(Frame, OnlyQuestionsAndAnswersHaveANumberAndAllOfThem) {
  using Kind = FrameKind;
  const auto passes = [](FrameKind kind, std::uint32_t question) {
    return decode(encode({.kind = kind, .question = question})).has_value();
  };
  for (const Kind kind : {Kind::kData, Kind::kPacket}) {
    EXPECT_TRUE(passes(kind, 0));
    EXPECT_FALSE(passes(kind, 1));
  }
  for (const Kind kind : {Kind::kRankProgress,
                          Kind::kAsk,
                          Kind::kWait,
                          Kind::kAskWait,
                          Kind::kDeadlock,
                          Kind::kDeadlockCommit,
                          Kind::kAck}) {
    EXPECT_FALSE(passes(kind, 0));
    EXPECT_TRUE(passes(kind, 1));
  }
  for (const Kind kind : {Kind::kAbort, Kind::kLeave}) {
    EXPECT_TRUE(passes(kind, 0));
    EXPECT_TRUE(passes(kind, 1));
  }
}

TEST(Frame, TextsThatAreTooLongAreCutBetweenCharacters) {
  const auto payload_of = [](const std::vector<std::byte>& bytes) {
    return bytes.size() - kFrameBytes;
  };
  const std::string reason = std::string(kMaxAbortBytes - 1, 'x') + "\u20ac";
  EXPECT_EQ(payload_of(encode_abort(0, Error(ErrorCode::kClosed, reason))), kMaxAbortBytes - 1);
  const std::size_t n_refused = kMaxNoteBytes - 1;
  const std::string refused = std::string(n_refused, 'x') + "\u20ac";
  const std::vector<std::byte> rank_progress =
      encode_rank_progress({.refused = refused, .waits = refused, .elsewhere = refused}, 1);
  EXPECT_EQ(payload_of(rank_progress), 8 + 3 * (8 + n_refused));
  EXPECT_TRUE(decode(std::span(rank_progress).first<kFrameBytes>()).has_value());
}

}  // namespace
}  // namespace unisono::transport
