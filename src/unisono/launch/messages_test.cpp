#include "unisono/launch/messages.h"

#include <gtest/gtest.h>

namespace unisono::launch::testing {

/// Type of decode() for the launcher's messages.
template <class Message>
using Decode = std::optional<Message> (*)(std::span<const std::byte> bytes);

/// Expects that a message of each kind is unchanged after encoding and decoding.
template <class Message>
void expect_all_to_come_back(const std::vector<Message>& one_of_each, Decode<Message> decode) {
  ASSERT_EQ(one_of_each.size(), std::variant_size_v<Message>);
  for (const Message& message : one_of_each) {
    const Message copy = decode(encode(message)).value();
    ASSERT_EQ(copy.index(), message.index());
    EXPECT_EQ(encode(copy), encode(message)) << message.index();
  }
}

/// Expects that decoding fails if bytes are missing, if there is an extra byte, or if the kind is
/// invalid.
template <class Message>
void expect_other_bytes_to_be_none(const std::vector<Message>& messages, Decode<Message> decode) {
  for (const Message& message : messages) {
    std::vector<std::byte> bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(std::span(bytes).first(size)).has_value()) << message.index();
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes).has_value()) << message.index();
  }
  EXPECT_FALSE(decode(std::vector{std::byte{99}}).has_value());
}

}  // namespace unisono::launch::testing

namespace unisono::launch {
namespace {

std::vector<Message> one_of_each() {
  return {Spawn{3, {"RANK=3", "EMPTY=", ""}, "--local_rank=3", 2, {4, 5, 70}},
          Signal{15},
          KillAll{},
          Started{1, 4711},
          SpawnFailed{2, 13, true},
          Exited{0, 0x8b},
          Idle{},
          Stuck{{5, 6}}};
}

TEST(LaunchProtocol, EveryMessageComesBackAsItWas) {
  testing::expect_all_to_come_back(one_of_each(), decode);
  const auto spawn = std::get<Spawn>(decode(encode(one_of_each()[0])).value());
  EXPECT_EQ(spawn.local_rank, 3);
  EXPECT_EQ(spawn.environment, (std::vector<std::string>{"RANK=3", "EMPTY=", ""}));
  EXPECT_EQ(spawn.cores, (std::vector<std::int32_t>{4, 5, 70}));
  EXPECT_TRUE(std::get<SpawnFailed>(decode(encode(one_of_each()[4])).value()).is_of_cores);
  EXPECT_EQ(std::get<Exited>(decode(encode(Exited{7, 256})).value()).status, 256);
}

TEST(LaunchProtocol, ShortenedOrLengthenedBytesAreNoMessage) {
  testing::expect_other_bytes_to_be_none(one_of_each(), decode);
}

}  // namespace
}  // namespace unisono::launch

namespace unisono::launch::hosts {
namespace {

std::vector<Message> one_of_each() {
  return {Begin{"alpha", "secret", "/data/run", {"A=1", "B="}, {"run", "--", "prog"}, true, false},
          Signal{2, true},
          Stop{"beta is lost"},
          Ready{"1.2.3"},
          Output{true, "[alpha:3] loss 0.5\n"},
          Ended{3, "rank 3 failed"},
          Alive{}};
}

TEST(HostMessages, EveryMessageComesBackAsItWas) {
  testing::expect_all_to_come_back(one_of_each(), decode);
  const auto begin = std::get<Begin>(decode(encode(one_of_each()[0])).value());
  EXPECT_EQ(begin.variables, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_TRUE(begin.out_has_colour);
  EXPECT_FALSE(begin.err_has_colour);
}

TEST(HostMessages, ShortenedOrLengthenedBytesAreNoMessage) {
  testing::expect_other_bytes_to_be_none(one_of_each(), decode);
}

}  // namespace
}  // namespace unisono::launch::hosts

namespace unisono::launch::nodes {
namespace {

std::vector<Message> one_of_each() {
  return {Join{"alpha", 17, 4, 1, 2, 3, "night", true, 30'000},
          Failed{7, 139, "rank 3 failed"},
          Over{7, "report\nof lines"},
          Leave{143, "SIGTERM"},
          Refused{"no place"},
          Notice{"waits"},
          Start{7, 1, 2, 4, 8, 1, 3, "night", false, 4123},
          Stop{7, "rank 3 failed", true},
          End{3, "report"},
          Alive{},
          Waits{7, 3, {{30'000, "barrier #1", {1, 2}}, {5'000, "recv (from any rank)", {}}}},
          GiveUp{7, 1, 30'000, "rank 3 in barrier #1"}};
}

TEST(NodeMessages, EveryMessageComesBackAsItWas) {
  testing::expect_all_to_come_back(one_of_each(), decode);
  const auto start = std::get<Start>(decode(encode(one_of_each()[6])).value());
  EXPECT_EQ(start.world_size, 8);
  EXPECT_EQ(start.run_id, "night");
  EXPECT_FALSE(start.has_store);
  EXPECT_EQ(start.master_port, 4123);
  const auto waits = std::get<Waits>(decode(encode(one_of_each()[10])).value());
  ASSERT_EQ(waits.waits.size(), 2U);
  EXPECT_EQ(waits.waits[0].operation, "barrier #1");
  EXPECT_EQ(waits.waits[0].late, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(waits.waits[1].waited_ms, 5'000);
}

TEST(NodeMessages, ShortenedOrLengthenedBytesAreNoMessage) {
  testing::expect_other_bytes_to_be_none(one_of_each(), decode);
}

TEST(NodeMessages, WhatIsTooLongIsCut) {
  const std::vector<std::byte> bytes = encode(End{1, std::string(2 * kMaxTextBytes, 'x')});
  EXPECT_LE(bytes.size(), kMaxMessageBytes);
  EXPECT_EQ(std::get<End>(decode(bytes).value()).report, std::string(kMaxTextBytes, 'x'));
}

TEST(NodeMessages, ABoolIsZeroOrOne) {
  std::vector<std::byte> bytes = encode(one_of_each()[7]);
  bytes.back() = std::byte{2};
  EXPECT_FALSE(decode(bytes).has_value());
}

}  // namespace
}  // namespace unisono::launch::nodes
