#include "unisono/rendezvous/roster/roster.h"

#include <unistd.h>

#include <chrono>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/this_node.h"

namespace unisono::rendezvous {
namespace {

Entry sample(int rank) {
  return {.version = net::kProtocolVersion,
          .release = "1.2.3",
          .nonce = 0x123456789ABCDEF0,
          .member = {.rank = rank,
                     .world_size = 4,
                     .host = "node-a",
                     .pid = 4123,
                     .node = "left",
                     .address = "10.0.0.2",
                     .port = 65535,
                     .endpoint = "unisono-1",
                     .backend = {.obstacle = "no GPU", .falls_back = false}}};
}

TEST(RosterCodec, EntriesThatAreAppendedComeBack) {
  const auto entries = decode_entries(encode_entry(sample(0)) + encode_entry(sample(3)));
  ASSERT_TRUE(entries.has_value());
  ASSERT_EQ(entries->size(), 2U);
  const Entry& last = entries->back();
  EXPECT_EQ(last.version, net::kProtocolVersion);
  EXPECT_EQ(last.release, "1.2.3");
  EXPECT_EQ(last.nonce, 0x123456789ABCDEF0);
  EXPECT_EQ(last.member.rank, 3);
  EXPECT_EQ(last.member.world_size, 4);
  EXPECT_EQ(last.member.host, "node-a");
  EXPECT_EQ(last.member.pid, 4123);
  EXPECT_EQ(last.member.node, "left");
  EXPECT_EQ(last.member.address, "10.0.0.2");
  EXPECT_EQ(last.member.port, 65535);
  EXPECT_EQ(last.member.endpoint, "unisono-1");
  EXPECT_EQ(last.member.backend.obstacle, "no GPU");
  EXPECT_FALSE(last.member.backend.falls_back);
  EXPECT_TRUE(decode_entries("")->empty());
}

TEST(RosterCodec, ALongObstacleIsCutBetweenCharacters) {
  Entry entry = sample(0);
  entry.member.backend.obstacle = "x";
  for (int n = 0; n < 3000; ++n) {
    entry.member.backend.obstacle += "\u00e9";
  }
  const auto entries = decode_entries(encode_entry(entry));
  ASSERT_TRUE(entries.has_value());
  EXPECT_EQ(entries->front().member.backend.obstacle, entry.member.backend.obstacle.substr(0, 511));
}

TEST(RosterCodec, EveryTruncationIsRefused) {
  const std::string text = encode_entry(sample(0));
  for (std::size_t size = 1; size < text.size(); ++size) {
    EXPECT_FALSE(decode_entries(text.substr(0, size)).has_value()) << size;
    std::string cut = text.substr(0, size);
    if (size > 8) {
      // The length field makes the entry complete.
      cut[0] = static_cast<char>(size - 8);
      EXPECT_FALSE(decode_entries(cut).has_value()) << size;
    }
  }
}

TEST(RosterCodec, BytesLeftOverInAnEntryAreRefused) {
  std::string text = encode_entry(sample(0)) + "?";
  text[0] = static_cast<char>(text.size() - 8);
  EXPECT_FALSE(decode_entries(text).has_value());
}

TEST(RosterCodec, AFallbackThatIsNeitherYesNorNoIsRefused) {
  std::string text = encode_entry(sample(0));
  text.back() = 2;
  EXPECT_FALSE(decode_entries(text).has_value());
}

TEST(RosterCodec, AnotherVersionGivesWhatItsMessagesNeed) {
  Entry other = sample(2);
  other.version = net::kProtocolVersion + 1;
  std::string text = encode_entry(other) + "more that it says";
  text[0] = static_cast<char>(text.size() - 8);
  const auto entries = decode_entries(text);
  ASSERT_TRUE(entries.has_value());
  EXPECT_EQ(entries->front().version, net::kProtocolVersion + 1);
  EXPECT_EQ(entries->front().release, "1.2.3");
  EXPECT_EQ(entries->front().member.rank, 2);
  EXPECT_EQ(entries->front().member.host, "node-a");
  EXPECT_EQ(entries->front().member.address, "");
}

TEST(NodeId, IsTheSameEachTimeAndNamesKernelNamespacesAndUser) {
  const std::string id = node_id(base::Config{});
  EXPECT_EQ(id, node_id(base::Config{}));
  EXPECT_THAT(id, ::testing::MatchesRegex("[^/]+/net[1-9][0-9]*/pid[1-9][0-9]*/uid[0-9]+"));
  EXPECT_THAT(id, ::testing::EndsWith("/uid" + std::to_string(::getuid())));
}

TEST(NodeId, TheSettingReplacesIt) {
  base::Config config;
  config.node_id = "left";
  EXPECT_EQ(node_id(config), "left");
}

TEST(NodeId, TheHostHasAName) {
  EXPECT_NE(host_name(), "");
}

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
            "(pid 999 on host-1); no process has rank 2");
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
  EXPECT_THAT(says(entries), HasSubstr("no process has RANK=2"));
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
            "rendezvous: some ranks need a fallback to backend unisono, which is not allowed: no "
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
