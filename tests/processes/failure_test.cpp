// A rank that dies, stops or never arrives: the other ranks name that rank.
#include <signal.h>

#include <algorithm>
#include <chrono>
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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The specified limit is ten seconds. A loaded machine needs the rest.
constexpr std::chrono::seconds kTimeToNotice{10};

// Waits until all ranks are in the middle of their all-reduces.
bool wait_until_streaming(Job& job, std::size_t world_size) {
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    if (!job.processes().wait_for_output(rank, "streaming\n")) {
      return false;
    }
  }
  return true;
}

struct Death {
  std::string name;
  std::string memory;
  std::vector<std::string> nodes;
  std::size_t victim;

  friend std::ostream& operator<<(std::ostream& out, const Death& death) {
    return out << death.name;
  }
};

bool wait_until_ready(Job& job, std::size_t n_ranks) {
  for (std::size_t rank = 0; rank < n_ranks; ++rank) {
    if (!job.processes().wait_for_output(rank, "ready\n")) {
      return false;
    }
  }
  return true;
}

std::string name_of(Job& job, std::size_t rank) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(job.processes().pid(rank)) +
         " on ";
}

// Kills the child that the rank has forked. The child must have lived until now.
void end_child(Job& job, std::size_t rank) {
  const std::string& text = job.processes().output(rank);
  const std::size_t at = text.find("child ");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(::kill(std::stoi(text.substr(at + 6)), SIGKILL), 0) << "it has ended before";
}

// No other rank has a connection to the killed rank that could report the death by its end.
TEST(KilledBeforeItsFirstOperation, IsNamedOnAnotherNode) {
  Job job({.world_size = 2, .mode = {"meet", "bw"}, .nodes = {"a", "b"}});
  job.start_all();
  if (!wait_until_ready(job, 2)) {
    return;
  }
  job.processes().send_signal(1, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].err, HasSubstr(name_of(job, 1)));
}

// The watchers of the node detect the death. A watcher has no information about operations.
TEST(KilledBeforeItsFirstOperation, EndsItsNeighboursOperationsByName) {
  Job job({.world_size = 3, .mode = {"meet", "bwb"}});
  job.start_all();
  if (!wait_until_ready(job, 3)) {
    return;
  }
  // Gives the other ranks time to wait in the barrier.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  job.processes().send_signal(1, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  for (const std::size_t rank : {0U, 2U}) {
    // The rank's own watcher reports the death, or the neighbour's watcher if that watcher was
    // faster.
    EXPECT_THAT(results[rank].err,
                AllOf(HasSubstr("[rank " + std::to_string(rank) + "/3] barrier #1: "),
                      HasSubstr(name_of(job, 1)),
                      HasSubstr(") is gone: ")));
  }
}

// Two ranks watch the killed rank. The first of the two is stopped, so rank 3 receives the report
// from the other watcher.
TEST(KilledBesideAStoppedRank, IsNamedAtOnceToAllThatRun) {
  Job job({.world_size = 4, .mode = {"meet", "bbwb"}});
  job.start_all();
  if (!wait_until_ready(job, 4)) {
    return;
  }
  job.processes().send_signal(1, SIGSTOP);
  job.processes().send_signal(2, SIGKILL);
  for (const std::size_t rank : {0U, 3U}) {
    EXPECT_TRUE(job.processes().wait_for_output(rank, ") is gone: ")) << "rank " << rank;
  }
  job.processes().send_signal(1, SIGCONT);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  for (const std::size_t rank : {0U, 1U, 3U}) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_THAT(results[rank].err, AllOf(HasSubstr(name_of(job, 2)), HasSubstr(") is gone: ")));
  }
}

// The process continues to run with another program.
TEST(ARankThatBecomesAnotherProgram, IsNamed) {
  Job job({.world_size = 4, .mode = {"become", "sleep"}});
  job.start_all();
  for (const std::size_t rank : {0U, 2U, 3U}) {
    EXPECT_TRUE(job.processes().wait_for_output(rank, ") is gone: ")) << "rank " << rank;
  }
  job.processes().send_signal(1, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  for (const std::size_t rank : {0U, 2U, 3U}) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_THAT(results[rank].err, HasSubstr(name_of(job, 1)));
  }
}

// Rank 0 learns of the death between two operations and keeps its group. Rank 2 can learn of the
// death only from rank 0.
TEST(KilledWhileItsNodeComputes, IsNamedOnAnotherNode) {
  Job job({.world_size = 3, .mode = {"meet_again", "kwb"}, .nodes = {"a", "a", "b"}});
  job.start_all();
  if (!wait_until_ready(job, 3)) {
    return;
  }
  job.processes().send_signal(1, SIGKILL);
  // Gives rank 0 time to detect the death. A later detection would take a path that another test
  // covers.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  job.processes().close_stdin(0);
  EXPECT_TRUE(job.processes().wait_for_output(2, name_of(job, 1)));
  job.processes().send_signal(0, SIGKILL);
  EXPECT_EQ(job.processes().finish(kTimeToNotice)[2].exit_code, 1);
}

// The store ends together with its host. Ranks lose their connections to neighbours that ended
// because of the store's loss, and must not blame those neighbours.
TEST(KilledInTheFirstOperation, TheStoresHostIsNamedOnAllNodes) {
  constexpr int kJobs = 10;
  for (int n = 0; n < kJobs && !::testing::Test::HasFailure(); ++n) {
    Job job({.world_size = 8,
             .mode = {"first_broadcast"},
             .nodes = {"a", "a", "a", "a", "b", "b", "b", "b"}});
    job.start_all();
    if (!wait_until_ready(job, 8)) {
      return;
    }
    const std::string dead = name_of(job, 0);
    if (n % 2 == 0) {
      // The kill happens at a different moment of the others' operation each time.
      for (int rank = 0; rank < 8; ++rank) {
        job.processes().close_stdin(static_cast<std::size_t>((rank + n) % 8));
      }
    } else {
      // The other node starts its operation after all its peers have ended.
      for (const std::size_t rank : {0U, 1U, 2U, 3U}) {
        job.processes().close_stdin(rank);
      }
      for (const std::size_t rank : {1U, 2U, 3U}) {
        EXPECT_TRUE(job.processes().wait_for_output(rank, dead));
      }
      for (const std::size_t rank : {4U, 5U, 6U, 7U}) {
        job.processes().close_stdin(rank);
      }
    }
    const std::vector<ProcessResult> results = job.processes().finish();
    for (std::size_t rank = 1; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].exit_code, 1) << "rank " << rank;
      EXPECT_THAT(results[rank].err, HasSubstr(dead)) << "job " << n << ", rank " << rank;
    }
  }
}

struct ParentsDeath {
  std::string name;
  std::vector<std::string> nodes;
  std::size_t victim;

  friend std::ostream& operator<<(std::ostream& out, const ParentsDeath& death) {
    return out << death.name;
  }
};

// File descriptors that a child of the rank holds open must not hide the rank's death.
class KilledWithAChild : public ::testing::TestWithParam<ParentsDeath> {};

TEST_P(KilledWithAChild, TheOthersEndAndNameTheRank) {
  const ParentsDeath& death = GetParam();
  Job job({.world_size = 2, .mode = {"stream", "with a child"}, .nodes = death.nodes});
  job.start_all();
  if (!wait_until_streaming(job, 2)) {
    return;
  }
  const std::string dead = name_of(job, death.victim);
  const std::size_t other = 1 - death.victim;
  const auto killed = std::chrono::steady_clock::now();
  job.processes().send_signal(death.victim, SIGKILL);
  EXPECT_TRUE(job.processes().wait_for_output(other, dead));
  const std::chrono::duration<double> until_named = std::chrono::steady_clock::now() - killed;
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  end_child(job, 0);
  end_child(job, 1);
  std::printf("named after %.3f s\n", until_named.count());
  EXPECT_LT(until_named, kTimeToNotice);
  EXPECT_EQ(results[other].exit_code, 1);
}

INSTANTIATE_TEST_SUITE_P(Ranks,
                         KilledWithAChild,
                         ::testing::Values(ParentsDeath{"OnTheSameNode", {}, 1},
                                           ParentsDeath{"OnAnotherNode", {"a", "b"}, 1},
                                           ParentsDeath{"TheStoresHost", {"a", "b"}, 0}),
                         [](const auto& case_info) { return case_info.param.name; });

// No rank has a connection to the killed rank. Only the end of its listener reveals the death, so a
// child must not inherit the listener.
TEST(KilledBeforeItsFirstOperation, IsNamedOnAnotherNodeThoughItsChildLives) {
  Job job({.world_size = 2, .mode = {"meet_with_a_child", "bw"}, .nodes = {"a", "b"}});
  job.start_all();
  if (!wait_until_ready(job, 2)) {
    return;
  }
  job.processes().send_signal(1, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].err, HasSubstr(name_of(job, 1)));
  end_child(job, 0);
  end_child(job, 1);
}

class Killed : public ::testing::TestWithParam<Death> {};

TEST_P(Killed, TheOthersEndAndNameTheRank) {
  const Death& death = GetParam();
  Job job({.world_size = 3, .mode = {"stream", death.memory}, .nodes = death.nodes});
  job.start_all();
  if (!wait_until_streaming(job, 3)) {
    return;
  }
  const std::string dead = name_of(job, death.victim);
  job.processes().send_signal(death.victim, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (rank != death.victim) {
      EXPECT_EQ(results[rank].exit_code, 1) << "rank " << rank;
      EXPECT_THAT(results[rank].err,
                  AllOf(HasSubstr("[rank " + std::to_string(rank) + "/3]"), HasSubstr(dead)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks,
    Killed,
    ::testing::Values(Death{"PrivateMemory", "private", {}, 1},
                      Death{"SymmetricMemory", "symmetric", {}, 1},
                      Death{"TheStoresHost", "private", {}, 0},
                      Death{"OnAnotherNode", "private", {"a", "a", "b"}, 2},
                      Death{"OnAnotherNodeSymmetric", "symmetric", {"a", "a", "b"}, 2},
                      Death{"WithANeighbourAndANodeBesides", "private", {"a", "a", "b"}, 1},
                      Death{"TheStoresHostOfSeveralNodes", "private", {"a", "b", "c"}, 0}),
    [](const auto& case_info) { return case_info.param.name; });

class Stopped : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Stopped, TheOthersSayWhoAndGoOnWithIt) {
  Job job({.world_size = 3,
           .mode = {"stream", "private"},
           .nodes = GetParam(),
           .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
  job.start_all();
  if (!wait_until_streaming(job, 3)) {
    return;
  }
  const std::string stopped = "rank 1 (pid " + std::to_string(job.processes().pid(1)) + " on ";
  job.processes().send_signal(1, SIGSTOP);
  const bool is_told = job.processes().wait_for_output(0, stopped) &&
                       job.processes().wait_for_output(0, ", stopped)");
  job.processes().send_signal(1, SIGCONT);
  job.processes().close_stdin(2);
  EXPECT_TRUE(is_told);
  for (const ProcessResult& result : job.processes().finish()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("done\n"));
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes,
                         Stopped,
                         ::testing::Values(std::vector<std::string>{},
                                           std::vector<std::string>{"a", "a", "b"}));

// The kernel accepts the other node's connection, but the stopped process does not answer the
// hello.
TEST(StoppedBeforeItsFirstOperation, AnotherNodeSaysWhoAndGoesOnWithIt) {
  Job job({.world_size = 2,
           .mode = {"meet", "ww"},
           .nodes = {"a", "b"},
           .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
  job.start_all();
  if (!wait_until_ready(job, 2)) {
    return;
  }
  job.processes().send_signal(0, SIGSTOP);
  job.processes().close_stdin(1);
  const bool is_told = job.processes().wait_for_output(1, "waits since") &&
                       job.processes().wait_for_output(1, name_of(job, 0));
  job.processes().send_signal(0, SIGCONT);
  job.processes().close_stdin(0);
  EXPECT_TRUE(is_told);
  for (const ProcessResult& result : job.processes().finish()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
}

// Rank 3 connects to all other ranks and sends its hello to a stopped rank.
TEST(StoppedBeforeItsFirstOperation, HidesNobodyFromAMonitoredBarrier) {
  Job job({.world_size = 4, .mode = {"monitored"}, .nodes = {"a", "b", "c", "d"}});
  job.start_all();
  if (!wait_until_ready(job, 4)) {
    return;
  }
  job.processes().send_signal(0, SIGSTOP);
  job.processes().close_stdin(1);
  job.processes().close_stdin(3);
  for (const std::size_t rank : {1U, 3U}) {
    EXPECT_TRUE(job.processes().wait_for_output(rank, "timed out waiting for "));
  }
  job.processes().send_signal(0, SIGCONT);
  job.processes().close_stdin(0);
  job.processes().close_stdin(2);
  const std::vector<ProcessResult> results = job.processes().finish();
  for (const std::size_t rank : {1U, 3U}) {
    // The rank that times out first may be quoted by the other rank, with the first rank's name as
    // a prefix.
    const std::string& text = results[rank].err;
    const std::string cause = text.substr(std::min(text.rfind("[rank "), text.size()));
    EXPECT_THAT(cause, AllOf(HasSubstr(name_of(job, 0)), HasSubstr(name_of(job, 2))));
    EXPECT_THAT(cause, Not(HasSubstr(name_of(job, 4 - rank))));
  }
}

class Absent : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Absent, ATimeoutNamesTheRank) {
  Job job({.world_size = 3, .mode = {"absence", "1"}, .nodes = GetParam()});
  job.start_all();
  for (const std::size_t rank : {0U, 2U}) {
    if (!job.processes().wait_for_output(rank, "rank_program: ")) {
      return;
    }
  }
  job.processes().close_stdin(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  const std::string absent = "rank 1 (pid " + std::to_string(job.processes().pid(1)) + " on ";
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_THAT(results[rank].err, AllOf(HasSubstr("barrier"), HasSubstr(absent)));
  }
}

INSTANTIATE_TEST_SUITE_P(OneNode, Absent, ::testing::Values(std::vector<std::string>{}));

INSTANTIATE_TEST_SUITE_P(SeveralNodes,
                         Absent,
                         ::testing::Values(std::vector<std::string>{"a", "a", "b"},
                                           std::vector<std::string>{"a", "b", "c"}));

TEST(BytesThatAreNoFrame, EndTheGroupAndNameTheirSender) {
  Job job({.world_size = 3, .mode = {"babble", "1"}});
  job.start_all();
  for (const std::size_t rank : {0U, 2U}) {
    if (!job.processes().wait_for_output(rank, "rank_program: ")) {
      return;
    }
  }
  job.processes().close_stdin(1);
  const std::string sender = name_of(job, 1);
  const std::vector<ProcessResult> results = job.processes().finish();
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_THAT(results[rank].err, AllOf(HasSubstr(sender), HasSubstr(") sent an invalid frame")));
  }
}

TEST(NeverStarted, ATimeoutNamesTheRank) {
  Job job({.world_size = 3, .variables = {{"UNISONO_TIMEOUT_SECONDS", "1"}}});
  job.start(0);
  job.start(2);
  for (const ProcessResult& result : job.processes().finish(kTimeToNotice)) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("for rank 1 (2 of 3 joined)"));
  }
}

}  // namespace
}  // namespace unisono::test
