#include "unisono/launch/nodes/messages.h"

#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::launch::nodes {
namespace {

std::vector<Message> one_of_each() {
  return {Join{"alpha", 17, 4, 1, 2, 3, "night", true},
          Failed{7, 139, "rank 3 failed"},
          Over{7, "report\nof lines"},
          Leave{143, "SIGTERM"},
          Refused{"no place"},
          Notice{"waits"},
          Start{7, 1, 2, 4, 8, 1, 3, "night", false, 4123},
          Stop{7, "rank 3 failed", true},
          End{3, "report"},
          Alive{}};
}

TEST(NodeMessages, EveryMessageComesBackAsItWas) {
  ASSERT_EQ(one_of_each().size(), std::variant_size_v<Message>);
  for (const Message& message : one_of_each()) {
    const Message copy = decode(encode(message)).value();
    ASSERT_EQ(copy.index(), message.index());
    EXPECT_EQ(encode(copy), encode(message)) << message.index();
  }
  const auto start = std::get<Start>(decode(encode(one_of_each()[6])).value());
  EXPECT_EQ(start.world_size, 8);
  EXPECT_EQ(start.run_id, "night");
  EXPECT_FALSE(start.has_store);
  EXPECT_EQ(start.master_port, 4123);
}

TEST(NodeMessages, ShortenedOrLengthenedBytesAreNoMessage) {
  for (const Message& message : one_of_each()) {
    std::vector<std::byte> bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(std::span(bytes).first(size)).has_value()) << message.index();
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes).has_value()) << message.index();
  }
  EXPECT_FALSE(decode(std::vector{std::byte{99}}).has_value());
}

TEST(NodeMessages, WhatIsTooLongIsCut) {
  const std::vector<std::byte> bytes = encode(End{1, std::string(2 * kMaxTextBytes, 'x')});
  EXPECT_LE(bytes.size(), kMaxMessageBytes);
  EXPECT_EQ(std::get<End>(decode(bytes).value()).report, std::string(kMaxTextBytes, 'x'));
}

TEST(NodeMessages, ABoolIsZeroOrOne) {
  std::vector<std::byte> bytes = encode(one_of_each()[0]);
  bytes.back() = std::byte{2};
  EXPECT_FALSE(decode(bytes).has_value());
}

}  // namespace
}  // namespace unisono::launch::nodes
