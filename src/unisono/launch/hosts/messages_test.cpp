#include "unisono/launch/hosts/messages.h"

#include <cstddef>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::launch::hosts {
namespace {

std::vector<Message> one_of_each() {
  return {Begin{"alpha", "secret", "/data/run", {"A=1", "B="}, {"run", "--", "prog"}, true, false},
          Signal{15},
          Stop{"beta is lost"},
          Ready{"1.2.3"},
          Output{true, "[alpha:3] loss 0.5\n"},
          Ended{3, "rank 3 failed"},
          Alive{}};
}

TEST(HostMessages, EveryMessageComesBackAsItWas) {
  ASSERT_EQ(one_of_each().size(), std::variant_size_v<Message>);
  for (const Message& message : one_of_each()) {
    const Message copy = decode(encode(message)).value();
    ASSERT_EQ(copy.index(), message.index());
    EXPECT_EQ(encode(copy), encode(message)) << message.index();
  }
  const auto begin = std::get<Begin>(decode(encode(one_of_each()[0])).value());
  EXPECT_EQ(begin.variables, (std::vector<std::string>{"A=1", "B="}));
  EXPECT_TRUE(begin.out_has_colour);
  EXPECT_FALSE(begin.err_has_colour);
}

TEST(HostMessages, ShortenedOrLengthenedBytesAreNoMessage) {
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
}  // namespace unisono::launch::hosts
