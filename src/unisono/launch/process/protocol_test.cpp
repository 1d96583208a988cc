#include "unisono/launch/process/protocol.h"

#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::launch {
namespace {

std::vector<Message> one_of_each() {
  return {Spawn{3, {"RANK=3", "EMPTY=", ""}, "--local_rank=3", 2},
          Signal{15},
          KillAll{},
          Started{1, 4711},
          SpawnFailed{2, 13},
          Exited{0, 0x8b},
          Idle{},
          Stuck{{5, 6}}};
}

TEST(LaunchProtocol, EveryMessageComesBackAsItWas) {
  for (const Message& message : one_of_each()) {
    const Message copy = decode(encode(message)).value();
    ASSERT_EQ(copy.index(), message.index());
    EXPECT_EQ(encode(copy), encode(message)) << message.index();
  }
  const auto spawn = std::get<Spawn>(decode(encode(one_of_each()[0])).value());
  EXPECT_EQ(spawn.local_rank, 3);
  EXPECT_EQ(spawn.environment, (std::vector<std::string>{"RANK=3", "EMPTY=", ""}));
  EXPECT_EQ(std::get<Exited>(decode(encode(Exited{7, 256})).value()).status, 256);
}

TEST(LaunchProtocol, ShortenedOrLengthenedBytesAreNoMessage) {
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

}  // namespace
}  // namespace unisono::launch
