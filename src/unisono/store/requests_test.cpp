#include "unisono/store/requests.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Sample {
  Opcode opcode;
  std::vector<std::byte> bytes;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::int64_t number = 0;
};

ByteWriter begin_with(Opcode opcode) {
  ByteWriter writer;
  writer.put(static_cast<std::uint8_t>(opcode));
  return writer;
}

Sample plain(Opcode opcode) {
  return {.opcode = opcode, .bytes = begin_with(opcode).bytes(), .keys = {}, .values = {}};
}

Sample with_u32(Opcode opcode, std::uint32_t number) {
  ByteWriter writer = begin_with(opcode);
  writer.put(number);
  return {.opcode = opcode, .bytes = writer.bytes(), .keys = {}, .values = {}, .number = number};
}

Sample with_texts(Opcode opcode, std::vector<std::string> values) {
  ByteWriter writer = begin_with(opcode);
  writer.put_string("/key");
  for (const std::string& value : values) {
    writer.put_string(value);
  }
  return {.opcode = opcode, .bytes = writer.bytes(), .keys = {"/key"}, .values = std::move(values)};
}

Sample with_number(Opcode opcode, std::int64_t number) {
  ByteWriter writer = begin_with(opcode);
  writer.put_string("/key");
  writer.put(number);
  return {
      .opcode = opcode, .bytes = writer.bytes(), .keys = {"/key"}, .values = {}, .number = number};
}

Sample with_keys(Opcode opcode, std::vector<std::string> keys) {
  ByteWriter writer = begin_with(opcode);
  writer.put<std::uint64_t>(keys.size());
  for (const std::string& key : keys) {
    writer.put_string(key);
  }
  return {.opcode = opcode, .bytes = writer.bytes(), .keys = std::move(keys), .values = {}};
}

Sample multi_set() {
  ByteWriter writer = begin_with(Opcode::kMultiSet);
  writer.put<std::uint64_t>(2);
  for (const char* text : {"/a", "1", "/b", ""}) {
    writer.put_string(text);
  }
  return {.opcode = Opcode::kMultiSet,
          .bytes = writer.bytes(),
          .keys = {"/a", "/b"},
          .values = {"1", ""}};
}

// Returns one of each kind of request in the order of the opcodes.
std::vector<Sample> every_request() {
  const std::string binary("\0\xFF\n", 3);
  return {with_u32(Opcode::kValidate, kValidateMagic),
          with_texts(Opcode::kSet, {binary}),
          with_texts(Opcode::kCompareSet, {"", "new"}),
          with_texts(Opcode::kGet, {}),
          with_number(Opcode::kAdd, -5),
          with_keys(Opcode::kCheck, {"/a", "/b", ""}),
          with_keys(Opcode::kWait, {}),
          plain(Opcode::kNumKeys),
          with_texts(Opcode::kDeleteKey, {}),
          with_texts(Opcode::kAppend, {"more"}),
          with_keys(Opcode::kMultiGet, {"/a"}),
          multi_set(),
          plain(Opcode::kCancelWait),
          with_u32(Opcode::kPing, 77),
          with_texts(Opcode::kQueuePush, {"value"}),
          with_texts(Opcode::kQueuePop, {}),
          with_texts(Opcode::kQueueLen, {}),
          plain(Opcode::kListKeys),
          with_number(Opcode::kBarrier, 4),
          plain(Opcode::kVersion),
          with_texts(Opcode::kWatch, {}),
          with_texts(Opcode::kUnwatch, {}),
          with_texts(Opcode::kSetAtEnd, {"value"})};
}

void expect_equal(const std::optional<Request>& request, const Sample& sample) {
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->opcode, sample.opcode);
  EXPECT_EQ(request->keys, sample.keys);
  EXPECT_EQ(request->values, sample.values);
  EXPECT_EQ(request->number, sample.number);
}

TEST(RequestParser, TheSamplesCoverEveryOpcode) {
  const std::vector<Sample> samples = every_request();
  std::set<Opcode> opcodes;
  for (const Sample& sample : samples) {
    opcodes.insert(sample.opcode);
  }
  for (int number = 0; number < 256; ++number) {
    const bool exists = number <= static_cast<int>(Opcode::kBarrier) ||
                        (number >= static_cast<int>(Opcode::kVersion) &&
                         number <= static_cast<int>(Opcode::kSetAtEnd));
    EXPECT_EQ(opcodes.contains(static_cast<Opcode>(number)), exists) << number;
  }
}

TEST(RequestParser, EveryRequestCutAtEveryByte) {
  for (const Sample& sample : every_request()) {
    for (std::size_t cut = 0; cut <= sample.bytes.size(); ++cut) {
      RequestParser parser{Limits{}};
      const std::span<const std::byte> bytes(sample.bytes);
      EXPECT_EQ(parser.feed(bytes.first(cut)), cut);
      if (cut < sample.bytes.size()) {
        EXPECT_FALSE(parser.take().has_value()) << "complete after " << cut << " bytes";
        EXPECT_EQ(parser.feed(bytes.subspan(cut)), bytes.size() - cut);
      }
      expect_equal(parser.take(), sample);
    }
  }
}

TEST(RequestParser, AStreamOfRequestsByteByByte) {
  RequestParser parser{Limits{}};
  for (int round = 0; round < 2; ++round) {
    for (const Sample& sample : every_request()) {
      std::optional<Request> request;
      for (const std::byte byte : sample.bytes) {
        ASSERT_FALSE(request.has_value());
        ASSERT_EQ(parser.feed(std::span(&byte, 1)), 1U);
        request = parser.take();
      }
      expect_equal(request, sample);
    }
  }
}

TEST(RequestParser, StopsAfterEachRequest) {
  RequestParser parser{Limits{}};
  std::vector<std::byte> bytes = with_texts(Opcode::kSet, {"1"}).bytes;
  const std::size_t n_first = bytes.size();
  bytes.resize(bytes.size() + 3, static_cast<std::byte>(Opcode::kNumKeys));
  EXPECT_EQ(parser.feed(bytes), n_first);
  EXPECT_TRUE(parser.take().has_value());
  EXPECT_EQ(parser.feed(std::span(bytes).subspan(n_first)), 1U);
  EXPECT_EQ(parser.take()->opcode, Opcode::kNumKeys);
}

std::string problem_with(const std::vector<std::byte>& bytes, const Limits& limits) {
  RequestParser parser{limits};
  EXPECT_LE(parser.feed(bytes), bytes.size());
  EXPECT_FALSE(parser.take().has_value() && !parser.problem().empty());
  return parser.problem();
}

TEST(RequestParser, OpcodesThatDoNotExistAreAProblem) {
  for (const int opcode : {19, 20, 100, 0xDF, 0xE5, 0xF5, 255}) {
    EXPECT_THAT(problem_with({static_cast<std::byte>(opcode)}, {}),
                HasSubstr("request " + std::to_string(opcode)));
  }
}

TEST(RequestParser, LimitsHoldExactly) {
  const Limits limits{.max_key_bytes = 4, .max_value_bytes = 5, .max_count = 2};
  EXPECT_THAT(problem_with(with_texts(Opcode::kSet, {"12345"}).bytes, limits), IsEmpty());
  EXPECT_THAT(problem_with(with_texts(Opcode::kSet, {"123456"}).bytes, limits),
              HasSubstr("set: a value of 6 bytes for \"key\"; 5 are allowed"));
  EXPECT_THAT(problem_with(with_keys(Opcode::kWait, {"1234", "1"}).bytes, limits), IsEmpty());
  EXPECT_THAT(problem_with(with_keys(Opcode::kWait, {"12345"}).bytes, limits),
              HasSubstr("wait: a key of 5 bytes; 4 are allowed"));
  EXPECT_THAT(problem_with(with_keys(Opcode::kWait, {"1", "2", "3"}).bytes, limits),
              HasSubstr("3 keys; 2 are allowed"));
}

TEST(RequestParser, ManySmallPartsAreALargeRequest) {
  const Limits limits{.max_request_bytes = 1000};
  EXPECT_THAT(problem_with(with_keys(Opcode::kWait, std::vector<std::string>(10)).bytes, limits),
              IsEmpty());
  EXPECT_THAT(problem_with(with_keys(Opcode::kWait, std::vector<std::string>(100)).bytes, limits),
              HasSubstr("more than 1000 bytes"));
}

TEST(RequestParser, HugeClaimsAreRefusedBeforeAnythingIsAllocated) {
  ByteWriter length = begin_with(Opcode::kGet);
  length.put(~std::uint64_t{0});
  EXPECT_THAT(problem_with(length.bytes(), {}), HasSubstr("a key of 18446744073709551615 bytes"));
  ByteWriter count = begin_with(Opcode::kMultiGet);
  count.put(~std::uint64_t{0});
  EXPECT_THAT(problem_with(count.bytes(), {}), HasSubstr("18446744073709551615 keys"));
}

// Fills the replies with a mixture of all kinds of data. Returns the expected bytes.
std::vector<std::byte> fill(Replies& replies) {
  ByteWriter expected;
  for (const std::size_t size : {0U, 1U, 4095U, 4096U, 100'000U, 3U, 70'000U}) {
    const auto text = std::make_shared<const std::string>(size, static_cast<char>('a' + size % 26));
    replies.put_string(text);
    expected.put_string(*text);
    replies.put_string(*text);
    expected.put_string(*text);
    replies.put(std::uint8_t{7});
    expected.put(std::uint8_t{7});
    replies.put_raw(std::as_bytes(std::span(*text)));
    expected.put_raw(std::as_bytes(std::span(*text)));
  }
  return std::move(expected).bytes();
}

TEST(Replies, AreTheSameBytesHoweverTheyAreTaken) {
  for (const std::size_t step : {1U, 7U, 4096U, 65'536U, 1'000'000U}) {
    Replies replies;
    const std::vector<std::byte> expected = fill(replies);
    ASSERT_EQ(replies.n_bytes(), expected.size());
    std::vector<std::byte> taken;
    while (replies.n_bytes() > 0) {
      const std::span<const std::byte> first = replies.first();
      const std::span<const std::byte> head = first.first(std::min(first.size(), step));
      const std::span<const std::byte> second = replies.second();
      const std::span<const std::byte> tail =
          second.first(std::min(second.size(), step - head.size()));
      std::vector<std::byte> next(head.begin(), head.end());
      next.insert(next.end(), tail.begin(), tail.end());
      ASSERT_FALSE(next.empty());
      replies.drop(next.size());
      taken.insert(taken.end(), next.begin(), next.end());
      ASSERT_EQ(taken.size() + replies.n_bytes(), expected.size());
    }
    EXPECT_TRUE(taken == expected) << step;
    EXPECT_TRUE(replies.first().empty());
    EXPECT_TRUE(replies.second().empty());
  }
}

TEST(Replies, ShareALargeValueUntilItIsSent) {
  const auto value = std::make_shared<const std::string>(1'000'000, 'x');
  Replies first;
  Replies second;
  first.put_string(value);
  second.put_string(value);
  EXPECT_EQ(value.use_count(), 3);
  EXPECT_EQ(static_cast<const void*>(first.second().data()), value->data());
  first.drop(first.n_bytes());
  EXPECT_EQ(value.use_count(), 2);
}

}  // namespace
}  // namespace unisono::store
