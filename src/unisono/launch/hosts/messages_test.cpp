#include "unisono/launch/hosts/messages.h"

#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/launch/testing/message_checks.h"

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
