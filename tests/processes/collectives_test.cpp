// Results of a job of real processes, and the resources that remain after the job.
#include <algorithm>
#include <cstdio>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"

namespace unisono::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

void expect_success(const std::vector<ProcessResult>& results) {
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].exit_code, 0) << "rank " << rank << "\n" << results[rank].err;
    EXPECT_EQ(results[rank].err, "") << "rank " << rank;
  }
}

class StartOrder : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(StartOrder, DoesNotMatter) {
  Job job({.world_size = 4});
  for (const int rank : GetParam()) {
    job.start(rank);
  }
  const std::vector<ProcessResult> results = job.processes().finish();
  expect_success(results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string rank = std::to_string(GetParam()[i]);
    EXPECT_EQ(results[i].out, "(" + rank + ",4) local (" + rank + ",4) all_reduce(ones)=4\n");
  }
}

INSTANTIATE_TEST_SUITE_P(EnvRendezvous,
                         StartOrder,
                         ::testing::Values(std::vector{0, 1, 2, 3},
                                           std::vector{3, 2, 1, 0},
                                           std::vector{2, 0, 3, 1}));

// Ranks 0 and 2 have already joined the store and wait in it.
TEST(Rendezvous, ARankMayComeLate) {
  Job job({.world_size = 3, .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
  job.start(0);
  job.start(2);
  if (!job.processes().wait_for_output(1, "for rank 1 (2 of 3 joined)")) {
    return;
  }
  job.start(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr(",3) all_reduce(ones)=3"));
  }
}

TEST(Rendezvous, RankZeroMayComeLast) {
  Job job({.world_size = 2, .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
  job.start(1);
  if (!job.processes().wait_for_output(0, "which rank 0 serves")) {
    return;
  }
  job.start(0);
  for (const ProcessResult& result : job.processes().finish()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

struct Layout {
  std::vector<std::string> nodes;
  std::vector<std::string> local;  // "(local rank,local world size)" of each rank.

  friend std::ostream& operator<<(std::ostream& out, const Layout& layout) {
    return out << ::testing::PrintToString(layout.nodes);
  }
};

class PretendNodes : public ::testing::TestWithParam<Layout> {};

TEST_P(PretendNodes, AnyMixWorks) {
  const Layout& layout = GetParam();
  const auto world_size = static_cast<int>(layout.nodes.size());
  const std::vector<ProcessResult> results =
      run_job({.world_size = world_size, .nodes = layout.nodes});
  expect_success(results);
  const std::string size = std::to_string(world_size);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    EXPECT_EQ(results[rank].out,
              "(" + std::to_string(rank) + "," + size + ") local " + layout.local[rank] +
                  " all_reduce(ones)=" + size + "\n");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Nodes,
    PretendNodes,
    ::testing::Values(Layout{{"a", "a", "b", "b"}, {"(0,2)", "(1,2)", "(0,2)", "(1,2)"}},
                      Layout{{"a", "b"}, {"(0,1)", "(0,1)"}},
                      Layout{{"a", "b", "c", "d"}, {"(0,1)", "(0,1)", "(0,1)", "(0,1)"}},
                      Layout{{"a", "b", "a", "b", "a"},
                             {"(0,3)", "(0,2)", "(1,3)", "(1,2)", "(2,3)"}}));

TEST(Tls, RanksThatSpeakItWithTheStoreMeetAsOthersDo) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{}, std::vector<std::string>{"a", "b"}}) {
    const std::vector<ProcessResult> results =
        run_job({.nodes = nodes, .variables = {{"UNISONO_SECRET", "s"}, {"UNISONO_TLS", "on"}}});
    expect_success(results);
    EXPECT_THAT(results[0].out, HasSubstr("all_reduce(ones)=2"));
  }
}

struct World {
  int size;
  std::vector<std::string> nodes;

  friend std::ostream& operator<<(std::ostream& out, const World& world) {
    return out << world.size << " ranks on " << ::testing::PrintToString(world.nodes);
  }
};

class AllReduce : public ::testing::TestWithParam<World> {};

TEST_P(AllReduce, OfEachSizeAddsUp) {
  const auto& [size, nodes] = GetParam();
  const std::vector<ProcessResult> results =
      run_job({.world_size = size, .mode = {"sizes"}, .nodes = nodes});
  expect_success(results);
  std::string expected;
  for (int count = 1; count <= 1 << 24; count *= 4) {
    expected += std::to_string(count) + ": " + std::to_string(size) + "\n";
  }
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.out, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds,
                         AllReduce,
                         ::testing::Values(World{1, {}},
                                           World{2, {}},
                                           World{3, {}},
                                           World{8, {}},
                                           World{2, {"a", "b"}},
                                           World{4, {"a", "a", "b", "b"}}));

class Broadcast : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Broadcast, FromEachRootGivesAllItsBits) {
  const std::vector<ProcessResult> results =
      run_job({.world_size = 4, .mode = {"broadcasts"}, .nodes = GetParam()});
  expect_success(results);
  std::vector<std::string> lines = split_lines(results[0].out);
  ASSERT_EQ(lines.size(), 4U);
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.out, results[0].out);
  }
  // Each root broadcasts different bits.
  for (std::string& line : lines) {
    line = line.substr(line.find(':'));
  }
  std::sort(lines.begin(), lines.end());
  EXPECT_EQ(std::unique(lines.begin(), lines.end()), lines.end());
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         Broadcast,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"a", "b", "b", "a"}));

class Late : public ::testing::TestWithParam<std::tuple<std::string, std::vector<std::string>>> {};

TEST_P(Late, NobodyLeavesBeforeTheLastHasComeNorSpinsMeanwhile) {
  const auto& [operation, nodes] = GetParam();
  const std::vector<ProcessResult> results =
      run_job({.world_size = 2, .mode = {"late", operation}, .nodes = nodes});
  expect_success(results);
  double last_entered = 0;
  double first_left = 1e18;
  for (const ProcessResult& result : results) {
    double entered = 0;
    double left = 0;
    double cpu = 0;
    ASSERT_EQ(
        std::sscanf(result.out.c_str(), "entered %lf left %lf cpu %lf", &entered, &left, &cpu), 3)
        << result.out;
    last_entered = std::max(last_entered, entered);
    first_left = std::min(first_left, left);
    std::printf("waited %.3f s with %.1f ms of CPU\n", left - entered, 1e3 * cpu);
    EXPECT_LT(cpu, kMaxWaitingSeconds);
  }
  EXPECT_LE(last_entered, first_left);
}

INSTANTIATE_TEST_SUITE_P(
    Operations,
    Late,
    ::testing::Combine(::testing::Values("barrier", "all_reduce", "all_reduce_async"),
                       ::testing::Values(std::vector<std::string>{},
                                         std::vector<std::string>{"a", "b"})));

// Private and shared memory both count, including pages of libraries and the touched pages of
// peers' arenas.
TEST(Idle, ARankHasLittleInMemory) {
  if (kIsSanitized) {
    return;  // Most of the memory is shadow memory.
  }
  constexpr long kMaxBytes = 12'000'000;
  const std::vector<ProcessResult> results = run_job({.world_size = 2, .mode = {"idle"}});
  expect_success(results);
  for (const ProcessResult& result : results) {
    long resident_kib = 0;
    const std::size_t at = result.out.find("Rss:");
    ASSERT_NE(at, std::string::npos) << result.out;
    ASSERT_EQ(std::sscanf(result.out.c_str() + at, "Rss: %ld kB", &resident_kib), 1);
    std::printf("resident: %ld KiB\n", resident_kib);
    EXPECT_LT(resident_kib * 1024, kMaxBytes) << result.out;
  }
}

struct Footprint {
  int n_descriptors = 0;
  int n_mappings = 0;  // Mappings of the node's shared memory.
};

// Returns the footprint of rank 1. Rank 0 has an additional store connection with each rank.
Footprint footprint_among(int world_size) {
  const std::vector<ProcessResult> results =
      run_job({.world_size = world_size, .mode = {"footprint"}});
  expect_success(results);
  Footprint found;
  EXPECT_EQ(std::sscanf(results[1].out.c_str(),
                        "%d descriptors, %d mappings",
                        &found.n_descriptors,
                        &found.n_mappings),
            2);
  return found;
}

TEST(ARankOfALargeNode, HoldsNoMoreOfTheSystemThanOneOfASmallNode) {
  constexpr int kStillToCome = 4;  // The watcher may be about to watch the next two ranks.
  const Footprint among_few = footprint_among(4);
  const Footprint among_many = footprint_among(16);
  EXPECT_EQ(among_few.n_mappings, 1);
  EXPECT_EQ(among_many.n_mappings, 1);
  EXPECT_LE(among_many.n_descriptors, among_few.n_descriptors + kStillToCome);
}

class Aftermath : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Aftermath, AGroupLeavesNothingAndAnotherMayFollow) {
  const std::vector<ProcessResult> results =
      run_job({.world_size = 2, .mode = {"again"}, .nodes = GetParam()});
  expect_success(results);
  std::string expected;
  for (int round = 0; round < 3; ++round) {
    expected += "round " + std::to_string(round) + ": 2\n" + "left: 0 descriptors, 0 threads\n";
  }
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.out, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         Aftermath,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"a", "b"}));

}  // namespace
}  // namespace unisono::test
