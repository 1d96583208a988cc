#include "unisono/rendezvous/roster/roster_check.h"

#include <chrono>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/roster/roster_codec.h"

namespace unisono::rendezvous {
namespace {

using ::testing::HasSubstr;

Entry entry(int rank, int world_size) {
  Entry entry;
  entry.version = 1;
  entry.release = "1.2.3";
  entry.member.rank = rank;
  entry.member.world_size = world_size;
  entry.member.host = "host-" + std::to_string(rank);
  entry.member.pid = 100 + rank;
  entry.member.address = "127.0.0.1";
  return entry;
}

std::vector<Entry> full(int world_size) {
  std::vector<Entry> entries;
  for (int rank = 0; rank < world_size; ++rank) {
    entries.push_back(entry(rank, world_size));
  }
  return entries;
}

std::string problem_of(const std::vector<Entry>& entries) {
  const auto problem = find_problem(entries);
  return problem ? problem->what() : "none";
}

TEST(RosterCheck, FullAndUnfinishedRostersAreFine) {
  EXPECT_EQ(problem_of({}), "none");
  EXPECT_EQ(problem_of(full(1)), "none");
  EXPECT_EQ(problem_of(full(5)), "none");
  EXPECT_EQ(problem_of({entry(3, 4), entry(1, 4)}), "none");
}

TEST(RosterCheck, DoubledRanksNameBothProcessesAndTheRankThatNobodyHas) {
  std::vector<Entry> entries = full(3);
  entries[2] = entry(1, 3);
  entries[2].member.pid = 999;
  EXPECT_EQ(problem_of(entries),
            "rendezvous: rank 1 was given to 2 processes: rank 1 (pid 101 on host-1), rank 1 "
            "(pid 999 on host-1); nobody has rank 2");
}

TEST(RosterCheck, UnequalWorldSizesNameWhoHasWhich) {
  std::vector<Entry> entries = full(3);
  entries[1].member.world_size = 2;
  EXPECT_EQ(problem_of(entries),
            "rendezvous: the world size differs: 2 on rank 1 (pid 101 on host-1), but 3 on rank 0 "
            "(pid 100 on host-0), rank 2 (pid 102 on host-2)");
}

TEST(RosterCheck, ImpossibleRanksAreNamed) {
  std::vector<Entry> entries = full(2);
  entries[1].member.rank = 2;
  EXPECT_THAT(problem_of(entries),
              HasSubstr("rank 2 (pid 101 on host-1) is impossible with a world size of 2"));
  entries[1].member.rank = -1;
  EXPECT_THAT(problem_of(entries), HasSubstr("rank -1"));
}

TEST(RosterCheck, VariablesAreNamedWhereTheyToldTheRanks) {
  FromVariables from{.rank = true, .world_size = true, .address = true};
  const auto says = [&](const std::vector<Entry>& entries) {
    const auto problem = find_problem(entries, "", from);
    return std::string(problem ? problem->what() : "none");
  };
  std::vector<Entry> entries = full(3);
  entries[2].member.rank = 1;
  EXPECT_THAT(says(entries), HasSubstr("RANK=1 was given to 2 processes"));
  EXPECT_THAT(says(entries), HasSubstr("nobody has RANK=2"));
  entries = full(2);
  entries[1].member.rank = 2;
  EXPECT_THAT(says(entries), HasSubstr("is impossible with WORLD_SIZE=2"));
  entries[1].member.world_size = 3;
  EXPECT_THAT(says(entries), HasSubstr("WORLD_SIZE differs: 2 on rank 0"));
  from.world_size = false;
  EXPECT_THAT(says(entries), HasSubstr("the world size differs: 2 on rank 0"));
  entries = full(2);
  entries[1].member.rank = 0;
  EXPECT_THAT(says(entries), HasSubstr("RANK=0 was given to 2 processes"));
  from.rank = false;
  EXPECT_THAT(says(entries), HasSubstr("rank 0 was given to 2 processes"));
  entries = full(2);
  entries[1].member.address = "10.0.0.2";
  EXPECT_THAT(says(entries), HasSubstr("MASTER_ADDR leads to loopback"));
}

TEST(RosterCheck, DifferentVersionsAreIncompatible) {
  std::vector<Entry> entries = full(2);
  entries[1].version = 2;
  const auto problem = find_problem(entries);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code(), ErrorCode::kIncompatible);
  EXPECT_THAT(problem->what(),
              HasSubstr("1.2.3 (protocol 1) on rank 0 (pid 100 on host-0), but 1.2.3 (protocol 2) "
                        "on rank 1"));
}

TEST(RosterCheck, DifferentReleasesAreIncompatible) {
  std::vector<Entry> entries = full(2);
  entries[1].release = "1.2.4";
  const auto problem = find_problem(entries);
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->code(), ErrorCode::kIncompatible);
  EXPECT_STREQ(problem->what(),
               "rendezvous: the ranks run different releases of unisono: 1.2.3 (protocol 1) on "
               "rank 0 (pid 100 on host-0), but 1.2.4 (protocol 1) on rank 1 (pid 101 on host-1); "
               "give all the same one");
}

TEST(RosterCheck, AFallbackIsThereForAllOrForNone) {
  std::vector<Entry> entries = full(3);
  entries[0].member.backend.falls_back = false;
  EXPECT_EQ(problem_of(entries), "none");
  entries[1].member.backend.obstacle = "no GPU";
  entries[2].member.backend.obstacle = "no GPU";
  EXPECT_EQ(problem_of(entries),
            "rendezvous: there may be no fallback to backend unisono, which some ranks need: no "
            "GPU on rank 1 (pid 101 on host-1), rank 2 (pid 102 on host-2); set "
            "UNISONO_BACKEND_FALLBACK=on on rank 0 (pid 100 on host-0) as well, or on none");
  entries[0].member.backend.falls_back = true;
  EXPECT_EQ(problem_of(entries), "none");
}

TEST(RosterCheck, LoopbackCannotBeReachedFromElsewhere) {
  std::vector<Entry> entries = full(2);
  entries[1].member.address = "10.0.0.2";
  EXPECT_THAT(
      problem_of(entries),
      HasSubstr("the store's address leads to loopback on rank 0 (pid 100 on host-0), but not on "
                "rank 1"));
  entries[0].member.address = "10.0.0.1";
  EXPECT_EQ(problem_of(entries), "none");
  entries[0].member.address = "somewhere";
  EXPECT_THAT(problem_of(entries), HasSubstr("gives \"somewhere\" as its address"));
}

TEST(RosterCheck, ADoubledRank0MayBeTwoJobs) {
  const std::string place = "MASTER_PORT=1";
  const auto message_of = [&](int rank) {
    return std::string(find_problem({entry(rank, 3), entry(rank, 3)}, place).value().what());
  };
  EXPECT_THAT(message_of(0), HasSubstr(", or two jobs use MASTER_PORT=1"));
  EXPECT_THAT(message_of(1), ::testing::Not(HasSubstr("two jobs")));
}

TEST(RosterCheck, LongListsAreCutShort) {
  std::vector<Entry> entries = full(20);
  for (Entry& each : entries) {
    each.member.rank = 0;
  }
  EXPECT_THAT(problem_of(entries), HasSubstr("and 12 more"));
  EXPECT_EQ(describe_missing({}, 20), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 12 more");
  EXPECT_EQ(describe_missing({entry(0, 3)}, 3), "ranks 1, 2");
  EXPECT_EQ(describe_missing({entry(0, 3), entry(1, 3)}, 3), "rank 2");
}

TEST(RosterCheck, MissingRanksOfAHugeWorldAreDescribedAtOnce) {
  const int huge = std::numeric_limits<int>::max();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(describe_missing({entry(0, huge), entry(-1, huge)}, huge),
            "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2147483638 more");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

TEST(RosterCheck, CountsThoseWhoAreToCome) {
  EXPECT_EQ(count_missing({}), 0U);
  EXPECT_EQ(count_missing(full(3)), 0U);
  EXPECT_EQ(count_missing({entry(0, 2), entry(0, 2), entry(7, 2), entry(-1, 2)}), 1U);
  EXPECT_EQ(count_missing({entry(0, 2), entry(1, 4)}), 2U);
}

}  // namespace
}  // namespace unisono::rendezvous
