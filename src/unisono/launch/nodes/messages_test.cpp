#include "unisono/launch/nodes/messages.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/launch/testing/message_checks.h"

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
