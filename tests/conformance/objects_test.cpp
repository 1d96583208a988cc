#include "unisono/comm/objects.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using ::testing::HasSubstr;

// Of any length, none among them, with any bytes in it.
std::string object_of(int rank) {
  return rank == 1 ? std::string()
                   : std::string(static_cast<std::size_t>(20000 * rank + 3), '\0') + "r" +
                         std::to_string(rank);
}

class Objects : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Objects, OfAnyLengthPassBetweenRanks) {
  test::run_ranks({.nodes = GetParam()}, [](ProcessGroup& group) {
    std::vector<std::string> all;
    for (int rank = 0; rank < group.world_size(); ++rank) {
      all.push_back(object_of(rank));
    }
    const std::string mine = object_of(group.rank());
    EXPECT_EQ(all_gather_object(group, mine), all);
    for (int root = 0; root < group.world_size(); ++root) {
      const bool is_root = group.rank() == root;
      EXPECT_EQ(gather_object(group, mine, root), is_root ? all : std::vector<std::string>());
      EXPECT_EQ(broadcast_object(group, mine, root), object_of(root));
      EXPECT_EQ(scatter_object(group, is_root ? all : std::vector<std::string>(), root), mine);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         Objects,
                         ::testing::Values(std::vector<std::string>{"a"},
                                           std::vector<std::string>{"a", "a", "a"},
                                           std::vector<std::string>{"a", "b", "a", "b"}));

TEST(Objects, AScatterNeedsOneForEachRank) {
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    try {
      (void)scatter_object(group, {"one"}, group.rank());
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("there are 1 objects, where a world of 2 needs one"));
    }
    EXPECT_EQ(broadcast_object(group, "fine"), "fine");
  });
}

}  // namespace
}  // namespace unisono
