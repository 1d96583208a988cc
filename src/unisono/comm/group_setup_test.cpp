#include "unisono/comm/group_setup.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::comm {
namespace {

TEST(GroupNumbers, NoTwoRanksGiveTheSame) {
  constexpr int kWorldSize = 3;
  constexpr int kGroups = 5;
  std::set<std::uint32_t> numbers{0};
  for (int rank = 0; rank < kWorldSize; ++rank) {
    GroupNumbers own(rank, kWorldSize);
    std::uint32_t number = own.take(2);
    numbers.insert(number);
    numbers.insert(own.next(number));
    number = own.take(kGroups - 2);
    for (int n = 2; n < kGroups; ++n) {
      numbers.insert(number);
      number = own.next(number);
    }
  }
  EXPECT_EQ(numbers.size(), 1 + kWorldSize * kGroups);
}

TEST(GroupNumbers, NamesSayTheFirstRank) {
  GroupNumbers numbers(2, 4);
  const std::uint32_t first = numbers.take(2);
  EXPECT_EQ(numbers.name(first), "2.1");
  EXPECT_EQ(numbers.name(numbers.next(first)), "2.2");
}

TEST(GroupNumbers, AreRefusedWhenThereAreNoMore) {
  constexpr int kWorldSize = 1 << 16;
  constexpr std::size_t kMost = (1 << 16) - 1;
  GroupNumbers numbers(7, kWorldSize);
  EXPECT_EQ(numbers.name(numbers.take(kMost)), "7.1");
  try {
    (void)numbers.take(1);
    FAIL() << "one number too many";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 7 was the first of 65535 new groups"));
  }
}

}  // namespace
}  // namespace unisono::comm
