#include "unisono/comm/job.h"

#include <map>

#include <gtest/gtest.h>

namespace unisono::comm {
namespace {

using Cores = std::map<pid_t, std::vector<int>>;

// Returns ranks 0, 1, ... of one node. The process ids equal the ranks.
transport::RankTable node_of(int n_ranks) {
  transport::RankTable roster;
  for (int rank = 0; rank < n_ranks; ++rank) {
    transport::Member& member = roster.members.emplace_back();
    member.job_rank = rank;
    member.host = "alpha";
    member.pid = rank;
    member.node = "a";
  }
  return roster;
}

std::string describe(const transport::RankTable& roster, const Cores& cores) {
  return describe_shared_core(roster, [&](pid_t pid) { return cores.at(pid); });
}

TEST(SharedCore, RanksOnOneAreNamed) {
  EXPECT_EQ(describe(node_of(2), {{0, {3}}, {1, {3}}}), "ranks 0 and 1 may use core 3 only");
  EXPECT_EQ(describe(node_of(5), {{0, {3}}, {1, {4}}, {2, {3}}, {3, {4}}, {4, {3}}}),
            "3 ranks, 0 and 2 among them, may use core 3 only; ranks 1 and 3 may use core 4 only");
}

TEST(SharedCore, RanksThatHaveOthersAreNot) {
  EXPECT_EQ(describe(node_of(2), {{0, {3}}, {1, {4}}}), "");
  EXPECT_EQ(describe(node_of(2), {{0, {3, 4}}, {1, {3, 4}}}), "");
  EXPECT_EQ(describe(node_of(2), {{0, {}}, {1, {}}}), "");
}

TEST(SharedCore, NeitherAreThreadsOfAProcessAndRanksOfOtherNodes) {
  transport::RankTable threads = node_of(2);
  threads.members[1].pid = 0;
  EXPECT_EQ(describe(threads, {{0, {3}}}), "");
  transport::RankTable nodes = node_of(2);
  nodes.members[1].node = "b";
  EXPECT_EQ(describe(nodes, {{0, {3}}}), "");
}

}  // namespace
}  // namespace unisono::comm
