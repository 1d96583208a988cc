// Messages between real processes: results, connections, and errors about ranks that die or never
// arrive.
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <ostream>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"

#include "processes/job.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Nodes = std::vector<std::string>;

// The specified limit is ten seconds. A loaded machine needs the rest.
constexpr std::chrono::seconds kTimeToNotice{10};

std::string name_of(Job& job, std::size_t rank) {
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(job.processes().pid(rank)) +
         " on ";
}

bool wait_for_all(Job& job, std::size_t world_size, const std::string& text) {
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    if (!job.processes().wait_for_output(rank, text)) {
      return false;
    }
  }
  return true;
}

struct Talk {
  std::string who;
  Nodes nodes;
  int n_connections;

  friend std::ostream& operator<<(std::ostream& out, const Talk& talk) {
    return out << talk.who << " on " << ::testing::PrintToString(talk.nodes);
  }
};

class Connections : public ::testing::TestWithParam<Talk> {};

TEST_P(Connections, AreOpenedByThePairsThatTalkAndByNoOthers) {
  const Talk& talk = GetParam();
  Job job({.world_size = 4, .mode = {"connections", talk.who}, .nodes = talk.nodes});
  job.start_all();
  if (!job.processes().wait_for_output(0, "before: 0\n")) {
    return;
  }
  for (std::size_t rank = 0; rank < 4; ++rank) {
    job.processes().close_stdin(rank);
  }
  const std::vector<ProcessResult> results = job.processes().finish();
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
  }
  EXPECT_THAT(results[0].out, HasSubstr("after: " + std::to_string(talk.n_connections) + "\n"));
}

INSTANTIATE_TEST_SUITE_P(Talks,
                         Connections,
                         ::testing::Values(Talk{"pairs", {"a", "b", "c", "d"}, 6},
                                           Talk{"ring", {"a", "b", "c", "d"}, 4},
                                           Talk{"pairs", {"a", "a", "b", "b"}, 4},
                                           Talk{"pairs", {"a", "a", "a", "a"}, 0}));

// Each rank reaches the store, receives the addresses of the others, and connects when a connection
// is needed.
TEST(DebugLog, ShowsHowRanksMeetStepByStep) {
  constexpr std::size_t kWorldSize = 4;
  Job job({.world_size = kWorldSize,
           .mode = {"connections", "pairs"},
           .nodes = {"a", "b", "c", "d"},
           .variables = {{"UNISONO_LOG", "debug"}}});
  job.start_all();
  ASSERT_TRUE(job.processes().wait_for_output(0, "before: 0\n"));
  const std::string opened = " has opened a connection for messages\n";
  EXPECT_THAT(job.processes().describe(), Not(HasSubstr(opened)));
  for (std::size_t rank = 0; rank < kWorldSize; ++rank) {
    job.processes().close_stdin(rank);
  }
  std::set<std::set<std::size_t>> pairs;
  const std::vector<ProcessResult> results = job.processes().finish();
  for (std::size_t rank = 0; rank < kWorldSize; ++rank) {
    const std::string& err = results[rank].err;
    const std::size_t store = err.find("debug: rendezvous: connected to the store at MASTER_ADDR=");
    const std::size_t addresses =
        err.find("debug: rendezvous: received the addresses of all 4 ranks");
    ASSERT_NE(addresses, std::string::npos) << err;
    EXPECT_LT(store, addresses) << err;
    EXPECT_LT(addresses, err.find(opened)) << err;
    for (std::size_t peer = 0; peer < kWorldSize; ++peer) {
      if (err.find("debug: rank " + std::to_string(peer) + " at 127.0.0.1:") != std::string::npos) {
        pairs.insert({rank, peer});
      }
    }
  }
  EXPECT_EQ(pairs.size(), kWorldSize * (kWorldSize - 1) / 2);
  EXPECT_THAT(results[0].out, HasSubstr("after: 6\n"));
}

class Ring : public ::testing::TestWithParam<Nodes> {};

TEST_P(Ring, MessagesOfEachSizeArrive) {
  const std::vector<ProcessResult> results =
      run_job({.world_size = 3, .mode = {"ring"}, .nodes = GetParam()});
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "1: right\n1000: right\n100000: right\n16000000: right\n");
    EXPECT_EQ(result.err, "");
  }
}

TEST_P(Ring, AWaitTakesLittleOfTheProcessor) {
  for (const std::string operation : {"recv", "recv_async"}) {
    const std::vector<ProcessResult> results =
        run_job({.world_size = 3, .mode = {"late", operation}, .nodes = GetParam()});
    for (std::size_t rank = 1; rank < results.size(); ++rank) {
      double waited = 0;
      double cpu = 0;
      ASSERT_EQ(std::sscanf(results[rank].out.c_str(), "waited %lf cpu %lf", &waited, &cpu), 2)
          << results[rank].out << results[rank].err;
      std::printf("%s waited %.3f s with %.1f ms of CPU\n", operation.c_str(), waited, 1e3 * cpu);
      EXPECT_LT(cpu, kMaxWaitingSeconds) << operation;
    }
  }
}

TEST_P(Ring, OthersEndAndNameARankThatIsKilledInMidTransfer) {
  Job job({.world_size = 3, .mode = {"stream"}, .nodes = GetParam()});
  job.start_all();
  if (!wait_for_all(job, 3, "streaming\n")) {
    return;
  }
  const std::string dead = name_of(job, 1);
  job.processes().send_signal(1, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(results[rank].exit_code, 1) << "rank " << rank << ": " << results[rank].err;
    EXPECT_THAT(results[rank].err,
                AllOf(HasSubstr("[rank " + std::to_string(rank) + "/3]"), HasSubstr(dead)));
  }
}

TEST_P(Ring, OthersEndAndNameARankThatIsKilledBeforeItSent) {
  Job job({.world_size = 3, .mode = {"absence", "1"}, .nodes = GetParam()});
  job.start_all();
  if (!wait_for_all(job, 3, "ready\n")) {
    return;
  }
  const std::string dead = name_of(job, 1);
  job.processes().send_signal(1, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(results[rank].exit_code, 1) << "rank " << rank << ": " << results[rank].err;
    EXPECT_THAT(results[rank].err, HasSubstr(dead));
  }
}

TEST_P(Ring, OthersSayForWhomTheyWaitAndThatItLeft) {
  Job job({.world_size = 3,
           .mode = {"absence", "1"},
           .nodes = GetParam(),
           .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
  job.start_all();
  const std::string absent = name_of(job, 1);
  const bool is_told = job.processes().wait_for_output(0, "waits since") &&
                       job.processes().wait_for_output(2, "waits since");
  job.processes().close_stdin(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_TRUE(is_told);
  for (const std::size_t rank : {0U, 2U}) {
    EXPECT_EQ(results[rank].exit_code, 1) << "rank " << rank << ": " << results[rank].err;
    EXPECT_THAT(
        results[rank].err,
        AllOf(HasSubstr("recv (i32[1], from rank 1, tag 3) waits since"), HasSubstr(absent)));
  }
}

TEST(Stopped, IsAskedWhileOtherMessagesGoOn) {
  Job job({.world_size = 3, .mode = {"meanwhile"}, .nodes = {"a", "b", "a"}});
  job.start_all();
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(job.processes().wait_for_output(rank, "ready\n"));
  }
  job.processes().send_signal(1, SIGSTOP);
  job.processes().close_stdin(2);
  job.processes().close_stdin(0);
  const bool has_ended = job.processes().wait_for_output(0, "message_program: ");
  job.processes().send_signal(1, SIGCONT);
  job.processes().close_stdin(1);
  ASSERT_TRUE(has_ended);
  const ProcessResult result = job.processes().finish()[0];
  EXPECT_THAT(result.err,
              HasSubstr("recv (i32[1], from rank 1, tag 0): timed out waiting for rank 1"));
  int n_returned = 0;
  ASSERT_EQ(std::sscanf(result.out.c_str(), "ready\n%d meanwhile", &n_returned), 1) << result.out;
  EXPECT_GT(n_returned, 10);
}

// Rank 0 has no connection that could report the death, and no rank makes a call that would detect
// the death.
TEST(FromAnybody, ADeathIsNamedThatARankOfItsNodeSees) {
  Job job({.world_size = 3, .mode = {"anybody"}, .nodes = {"a", "b", "b"}});
  job.start_all();
  if (!wait_for_all(job, 3, "ready\n")) {
    return;
  }
  const std::string dead = name_of(job, 2);
  job.processes().send_signal(2, SIGKILL);
  EXPECT_TRUE(job.processes().wait_for_output(0, dead));
  job.processes().close_stdin(1);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].err,
              AllOf(HasSubstr(dead), HasSubstr("is gone"), HasSubstr("from any rank")));
}

TEST(FromAnybody, ARankThatStaysAloneIsTold) {
  Job job({.world_size = 3, .mode = {"anybody"}, .nodes = {"a", "b", "c"}});
  job.start_all();
  if (!wait_for_all(job, 3, "ready\n")) {
    return;
  }
  const std::string left = name_of(job, 1);
  const std::string dead = name_of(job, 2);
  job.processes().close_stdin(1);
  job.processes().send_signal(2, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kTimeToNotice);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(
      results[0].err,
      AllOf(HasSubstr("all ranks that could send are gone"), HasSubstr(left), HasSubstr(dead)));
}

TEST(FromAnybody, ARankThatLeavesIsNoErrorWhileAnotherIsThere) {
  Job job({.world_size = 3,
           .mode = {"anybody"},
           .nodes = {"a", "b", "c"},
           .variables = {{"UNISONO_TIMEOUT_SECONDS", "4"}}});
  job.start_all();
  if (!wait_for_all(job, 3, "ready\n")) {
    return;
  }
  job.processes().close_stdin(1);
  const bool has_timed_out = job.processes().wait_for_output(0, "timed out");
  job.processes().close_stdin(2);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_TRUE(has_timed_out) << results[0].err;
}

class Misfit : public ::testing::TestWithParam<Nodes> {};

TEST_P(Misfit, ClosesTheGroupOfASenderThatIsDone) {
  Job job({.world_size = 2, .mode = {"mismatch"}, .nodes = GetParam()});
  job.start_all();
  const bool has_failed = job.processes().wait_for_output(0, "sent\n") &&
                          job.processes().wait_for_output(1, "failed\n");
  // The subject of this test is that the error needs time but no call.
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  job.processes().close_stdin(0);
  const bool has_closed = job.processes().wait_for_output(0, "message_program: ");
  job.processes().close_stdin(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_TRUE(has_failed && has_closed);
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("i32[1]"), HasSubstr("f64[2]")));
  }
  EXPECT_EQ(results[0].out, "sent\n");
}

INSTANTIATE_TEST_SUITE_P(Nodes, Misfit, ::testing::Values(Nodes{}, Nodes{"a", "b"}));

INSTANTIATE_TEST_SUITE_P(Nodes,
                         Ring,
                         ::testing::Values(Nodes{}, Nodes{"a", "b", "c"}, Nodes{"a", "a", "b"}));

// Leaves the process for finish() to reap.
bool wait_for_end(pid_t process) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  siginfo_t end{};
  while (end.si_pid == 0 && !deadline.has_passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ::waitid(P_PID, static_cast<id_t>(process), &end, WEXITED | WNOWAIT | WNOHANG);
  }
  return end.si_pid == process;
}

struct Exit {
  std::string how;
  int exit_code;
  std::string said;  // Error of rank 1, which then calls an operation of both ranks.

  friend std::ostream& operator<<(std::ostream& out, const Exit& exit) { return out << exit.how; }
};

class Exits : public ::testing::TestWithParam<std::tuple<Exit, Nodes>> {};

TEST_P(Exits, WithoutDestroyingTheGroupSayGoodbye) {
  const auto& [exit, nodes] = GetParam();
  Job job({.world_size = 2,
           .mode = {"exits", exit.how},
           .nodes = nodes,
           .variables = {{"UNISONO_STALL_SECONDS", "60"}}});
  job.start_all();
  EXPECT_TRUE(wait_for_end(job.processes().pid(0)));
  job.processes().close_stdin(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_EQ(results[0].exit_code, exit.exit_code) << results[0].err;
  EXPECT_EQ(results[0].err, "");
  // Rank 1 may receive an abort before the message.
  EXPECT_THAT(results[1].out, AnyOf("received 17\n", exit.exit_code == 0 ? "received 17\n" : ""));
  EXPECT_THAT(results[1].err, HasSubstr(exit.said));
}

INSTANTIATE_TEST_SUITE_P(
    Ways,
    Exits,
    ::testing::Combine(::testing::Values(Exit{"of main", 0, "left the group"},
                                         Exit{"in a child, too", 0, "left the group"},
                                         Exit{"in an operation",
                                              3,
                                              "its process ended while operations were under way"}),
                       ::testing::Values(Nodes{}, Nodes{"a", "b"})));

class LastMessage : public ::testing::TestWithParam<std::tuple<std::string, Nodes>> {};

INSTANTIATE_TEST_SUITE_P(Ways,
                         LastMessage,
                         ::testing::Combine(::testing::Values("by destroy", "by return from main"),
                                            ::testing::Values(Nodes{}, Nodes{"a", "b"})));

TEST_P(LastMessage, ThatDoesNotFitFailsBothProcesses) {
  const auto& [how, nodes] = GetParam();
  Job job({.world_size = 2, .mode = {"last_message", how}, .nodes = nodes});
  job.start_all();
  EXPECT_TRUE(job.processes().wait_for_output(0, "leaves\n"));
  job.processes().close_stdin(1);
  for (const ProcessResult& result : job.processes().finish(kTimeToNotice)) {
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(
        result.err,
        AllOf(HasSubstr("send (i32[1], to rank 1"), HasSubstr("recv (f64[2], from rank 0")));
    EXPECT_THAT(result.out, Not(HasSubstr("has left")));
  }
}

TEST_P(LastMessage, ToARankThatDiesDoesNotHoldUpItsSender) {
  const auto& [how, nodes] = GetParam();
  Job job({.world_size = 2, .mode = {"last_message", how}, .nodes = nodes});
  job.start_all();
  EXPECT_TRUE(wait_for_all(job, 1, "leaves\n") && job.processes().wait_for_output(1, "ready\n"));
  job.processes().send_signal(1, SIGKILL);
  EXPECT_EQ(job.processes().finish(kTimeToNotice)[0].exit_code, 0);
}

TEST_P(LastMessage, ToARankThatIsStoppedHoldsItsSenderUpForAFewSeconds) {
  const auto& [how, nodes] = GetParam();
  Job job({.world_size = 2, .mode = {"last_message", how}, .nodes = nodes});
  job.start_all();
  EXPECT_TRUE(job.processes().wait_for_output(1, "ready\n"));
  job.processes().send_signal(1, SIGSTOP);
  EXPECT_TRUE(job.processes().wait_for_output(0, "leaves\n"));
  EXPECT_TRUE(wait_for_end(job.processes().pid(0)));
  job.processes().send_signal(1, SIGKILL);
  EXPECT_EQ(job.processes().finish()[0].exit_code, 0);
}

class Posted : public ::testing::TestWithParam<Nodes> {};

INSTANTIATE_TEST_SUITE_P(Nodes, Posted, ::testing::Values(Nodes{}, Nodes{"a", "b"}));

TEST_P(Posted, AnOperationUnderWayAtTheEndOfAProcessEndsWell) {
  Job job({.world_size = 2,
           .mode = {"posted"},
           .nodes = GetParam(),
           .variables = {{"UNISONO_STALL_SECONDS", "60"}}});
  job.start_all();
  EXPECT_TRUE(job.processes().wait_for_output(0, "ends\n"));
  // Longer than the wait of a process that fails.
  std::this_thread::sleep_for(std::chrono::seconds(6));
  job.processes().close_stdin(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_EQ(results[1].out, "sum 3\n");
  for (const ProcessResult& result : results) {
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
  }
}

}  // namespace
}  // namespace unisono::test
