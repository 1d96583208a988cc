#include "unisono/launch/process/protocol.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/launch/testing/message_checks.h"

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
