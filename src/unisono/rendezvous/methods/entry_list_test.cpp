#include "unisono/rendezvous/methods/entry_list.h"

#include <vector>

#include <gtest/gtest.h>

#include "unisono/rendezvous/roster/roster_codec.h"

namespace unisono::rendezvous {
namespace {

std::vector<Entry> entries_of(const std::vector<int>& ranks, int world_size) {
  std::vector<Entry> entries;
  for (const int rank : ranks) {
    entries.emplace_back();
    entries.back().member.rank = rank;
    entries.back().member.world_size = world_size;
  }
  return entries;
}

std::vector<int> given_out(const std::vector<int>& ranks) {
  std::vector<int> result;
  for (const Entry& entry : give_out_ranks(entries_of(ranks, 9))) {
    result.push_back(entry.member.rank);
  }
  return result;
}

TEST(EntryList, RanksAreGivenOutInTheOrderOfComingAroundThoseThatAreWanted) {
  using Ranks = std::vector<int>;
  EXPECT_EQ(given_out({}), Ranks());
  EXPECT_EQ(given_out({-1, -1, -1}), (Ranks{0, 1, 2}));
  EXPECT_EQ(given_out({2, 0, 1}), (Ranks{2, 0, 1}));
  EXPECT_EQ(given_out({-1, 0, -1, 2}), (Ranks{1, 0, 3, 2}));
  EXPECT_EQ(given_out({1, 1, -1}), (Ranks{1, 1, 0}));
}

TEST(EntryList, ItIsFullWithAsManyAsTheFirstOnesWorldSize) {
  EXPECT_FALSE(is_full({}));
  EXPECT_FALSE(is_full(entries_of({-1, -1}, 3)));
  EXPECT_TRUE(is_full(entries_of({-1, -1, -1}, 3)));
  EXPECT_TRUE(is_full(entries_of({-1, -1, -1, -1}, 3)));
}

}  // namespace
}  // namespace unisono::rendezvous
