// Measures how soon the other ranks name a rank that was killed or that made a different call.
#include "processes/naming_time.h"

#include <signal.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Promised limit for ranks on the node of the dead rank.
constexpr milliseconds kOnTheNode{kIsSanitized ? 1000 : 100};

struct Death {
  std::string name;
  std::string mode;  ///< Mode of the rank program. With "meet", the ranks have no connections yet.
  std::vector<std::string> nodes;
  std::size_t victim;

  friend std::ostream& operator<<(std::ostream& out, const Death& death) {
    return out << death.name;
  }
};

// Times until the ranks of the node and all other ranks have named the dead rank.
struct Times {
  Seconds on_the_node{0};
  Seconds between_nodes{0};
};

Times kill_once(const Death& death) {
  std::string roles(death.nodes.size(), 'b');
  roles[death.victim] = 'w';
  Job job({.world_size = static_cast<int>(death.nodes.size()),
           .mode = {death.mode, death.mode == "meet" ? roles : "private"},
           .nodes = death.nodes});
  job.start_all();
  for (std::size_t rank = 0; rank < death.nodes.size(); ++rank) {
    if (!job.processes().wait_for_output(rank, death.mode == "meet" ? "ready\n" : "streaming\n")) {
      return {};
    }
  }
  std::vector<std::size_t> neighbours;
  std::vector<std::size_t> others;
  for (std::size_t rank = 0; rank < death.nodes.size(); ++rank) {
    if (rank != death.victim) {
      const bool is_neighbour = death.nodes[rank] == death.nodes[death.victim];
      (is_neighbour ? neighbours : others).push_back(rank);
    }
  }
  const std::string name = "rank " + std::to_string(death.victim) + " (pid " +
                           std::to_string(job.processes().pid(death.victim)) + " on ";
  // The ranks need this time to reach the state that is tested.
  std::this_thread::sleep_for(milliseconds(200));
  const auto start = std::chrono::steady_clock::now();
  job.processes().send_signal(death.victim, SIGKILL);
  Times times;
  times.on_the_node = time_to_name(job, neighbours, name, start);
  times.between_nodes = time_to_name(job, others, name, start);
  for (std::size_t rank = 0; const ProcessResult& result : job.processes().finish()) {
    EXPECT_EQ(result.exit_code, rank == death.victim ? 128 + SIGKILL : 1);
    ++rank;
  }
  return times;
}

class TimeToName : public ::testing::TestWithParam<Death> {};

TEST_P(TimeToName, TheKilledRankIsAsPromised) {
  bool is_in_time = false;
  for (int n_tries = 0; n_tries < kTries && !is_in_time && !HasFailure(); ++n_tries) {
    const Times times = kill_once(GetParam());
    std::printf("named after %.3f s on its node, %.3f s on all\n",
                times.on_the_node.count(),
                times.between_nodes.count());
    is_in_time = times.on_the_node < kOnTheNode && times.between_nodes < kBetweenNodes;
  }
  EXPECT_TRUE(is_in_time);
}

INSTANTIATE_TEST_SUITE_P(
    Ranks,
    TimeToName,
    ::testing::Values(Death{"OnOneNode", "stream", {"a", "a", "a"}, 1},
                      Death{"TheStoresHostOnOneNode", "stream", {"a", "a", "a"}, 0},
                      Death{"ANeighbour", "stream", {"a", "a", "b"}, 1},
                      Death{"TheStoresHost", "stream", {"a", "a", "b"}, 0},
                      Death{"TheStoresHostOfAlternatingNodes", "stream", {"a", "b", "a"}, 0},
                      Death{"TheStoresHostOfThreeNodes", "stream", {"a", "b", "c"}, 0},
                      Death{"ANeighbourFarFromTheStore", "stream", {"a", "a", "b", "b"}, 3},
                      Death{"AloneOnItsNode", "stream", {"a", "b", "a"}, 1},
                      Death{"TheStoresHostBeforeItsFirstOperation", "meet", {"a", "b", "c"}, 0},
                      Death{"BeforeItsFirstOperation", "meet", {"a", "a", "b"}, 2}),
    [](const auto& case_info) { return case_info.param.name; });

struct Disagreement {
  std::string name;
  std::vector<std::string> nodes;
  /// The call of rank 1, and the call of the other ranks.
  std::string one;
  std::string others;
  /// Ranks that can't continue without detecting the mismatch.
  std::vector<std::size_t> ranks;

  friend std::ostream& operator<<(std::ostream& out, const Disagreement& which) {
    return out << which.name;
  }
};

class TimeToTell : public ::testing::TestWithParam<Disagreement> {};

// Every rank ends when the mismatch is detected, and rank 0 serves the store.
TEST_P(TimeToTell, OfAMismatchIsShortAndNamesBothCalls) {
  const Disagreement& which = GetParam();
  bool is_in_time = false;
  for (int n_tries = 0; n_tries < kTries && !is_in_time && !HasFailure(); ++n_tries) {
    Job job({.world_size = static_cast<int>(which.nodes.size()),
             .mode = {"disagree", which.name.substr(0, which.name.find("On"))},
             .nodes = which.nodes});
    job.start_all();
    // From here all ranks can see each other's calls.
    for (std::size_t rank = 0; rank < which.nodes.size(); ++rank) {
      if (!job.processes().wait_for_output(rank, "calling\n")) {
        return;
      }
    }
    const auto start = std::chrono::steady_clock::now();
    // A rank may receive the error of another rank, with a prefix, before it detects its own.
    const Seconds time = time_to_name(job, which.ranks, " ranks called ", start);
    const std::vector<ProcessResult> results = job.processes().finish();
    for (const std::size_t rank : which.ranks) {
      EXPECT_EQ(results[rank].exit_code, 1);
      EXPECT_THAT(results[rank].err, AllOf(HasSubstr(which.one), HasSubstr(which.others)));
    }
    std::printf("told after %.3f s\n", time.count());
    is_in_time = time < kBetweenNodes * 7 / 10;
  }
  EXPECT_TRUE(is_in_time);
}

INSTANTIATE_TEST_SUITE_P(Calls,
                         TimeToTell,
                         ::testing::Values(Disagreement{"TypesOnAlternatingNodes",
                                                        {"a", "b", "a"},
                                                        "all_reduce #2 (i32[1000], sum)",
                                                        "all_reduce #2 (f32[1000], sum)",
                                                        {0, 1, 2}},
                                           Disagreement{"RootsOnAlternatingNodes",
                                                        {"a", "b", "a"},
                                                        "gather #2 (f32[1000], root 1)",
                                                        "gather #2 (f32[1000], root 0)",
                                                        {0, 1}}),
                         [](const auto& case_info) { return case_info.param.name; });

}  // namespace
}  // namespace unisono::test
