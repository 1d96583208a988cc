#include "unisono/base/random_hex.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(RandomHex, IsAnotherOneEachTime) {
  const std::string first = random_hex(32);
  EXPECT_THAT(first, ::testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(first.size(), 64U);
  EXPECT_NE(first, random_hex(32));
}

}  // namespace
}  // namespace unisono
