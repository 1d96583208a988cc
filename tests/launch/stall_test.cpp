// --stall-timeout: a rank counts as failed after the other ranks have waited too long.
#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/net/address.h"
#include "unisono/net/ports.h"

#include "launch_run.h"

namespace unisono::launch_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<std::string>;

constexpr int kGivenUp = 124;

// Returns "run", `options`, a limit of two seconds, and the program. In the program rank `rank`
// stalls in the way `how`.
Words stalling(Words options, const std::string& how, int rank) {
  options.insert(options.begin(), {"run", "--stall-timeout", "2"});
  options.insert(options.end(), {UNISONO_STALLING_PROGRAM, how, std::to_string(rank)});
  return options;
}

TEST(LaunchStall, AStoppedRankEndsTheJobAndIsNamed) {
  const RunResult result = run_to_end({.arguments = stalling({"-n", "3"}, "stops", 1)});
  EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("rank 1 \\(pid [0-9]+\\) was aborted after [0-9.]+ s: others "
                                  "have waited for it for [2-9]\\.[0-9] s \\(--stall-timeout\\), "
                                  "and its process is stopped\n"),
                    ContainsRegex("waiting ranks: ranks 0, 2 in all_reduce #5 \\(f32\\[1\\], "
                                  "sum\\) for [2-9]\\.[0-9] s\n"),
                    HasSubstr("  | stalls\n"),
                    HasSubstr("ended because of it: ranks 0, 2 (")));
}

TEST(LaunchStall, AfterItAllStartAgain) {
  const RunResult result =
      run_to_end({.arguments = stalling({"-n", "3", "--max-restarts", "1"}, "stops", 1)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "is done: 1\n"), 3) << result.out;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("restart 1 of 1\n"),
                    ContainsRegex("before restart 1, rank 1 \\(pid [0-9]+\\) was aborted")));
}

TEST(LaunchStall, ARankThatSleepsOutsideOfTheOperationsIsOne) {
  const RunResult result = run_to_end({.arguments = stalling({"-n", "2"}, "sleeps", 0)});
  EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("rank 0 .* and its process is sleeping\n"));
}

TEST(LaunchStall, ARankThatLoopsIsOne) {
  const RunResult result = run_to_end({.arguments = stalling({"-n", "2"}, "loops", 1)});
  EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("rank 1 .* and its process is running\n"));
}

TEST(LaunchStall, ARankThatOwesAMessageIsOne) {
  const RunResult result = run_to_end({.arguments = stalling({"-n", "3"}, "owes", 2)});
  EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("rank 2 .* was aborted"),
                    ContainsRegex("waiting ranks: ranks 0-1 in recv \\(f32\\[1\\], from rank 2")));
}

// The sum of the waits exceeds the limit.
const Words kLonger{"--stall-timeout", "4"};

TEST(LaunchStall, WaitsThatEndInTimeAreNone) {
  Words options = kLonger;
  options.insert(options.end(), {"-n", "2"});
  const RunResult result = run_to_end({.arguments = stalling(options, "pauses", 1)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      result.err,
      AllOf(ContainsRegex("waits since [0-9.]+ s for rank 1"), Not(HasSubstr("was aborted"))));
}

// A shell waits for the program.
TEST(LaunchStall, TheProcessThatStallsIsFoundBehindAShell) {
  const RunResult result =
      run_to_end({.arguments = {"run",
                                "--stall-timeout",
                                "2",
                                "-n",
                                "2",
                                "sh",
                                "-c",
                                UNISONO_STALLING_PROGRAM " stops 1; exit $?"}});
  EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("rank 1 .* and its process [0-9]+ is stopped\n"));
}

// Without the option a stall has no consequences.
TEST(LaunchStall, WithoutALimitRanksMayStall) {
  LaunchRun run({.arguments = {"run", "-n", "2", UNISONO_STALLING_PROGRAM, "sleeps", "1"},
                 .environment = {"UNISONO_STALL_SECONDS=0.5"}});
  run.wait_for_error("waits since 2");
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  EXPECT_EQ(run.finish().exit_code, 143);
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST(LaunchStall, ReportsThatComeTooLateForTheLimitAreRefused) {
  const RunResult result = run_to_end({.arguments = {"run", "--stall_timeout=9", "true"},
                                       .environment = {"UNISONO_STALL_SECONDS=5"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(split_lines(result.err).size(), 1U) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("--stall-timeout 9"),
                    HasSubstr("after 5 s (UNISONO_STALL_SECONDS)"),
                    HasSubstr("half of it at most")));
}

TEST(LaunchStall, RanksReportWaitsInTimeForTheLimit) {
  for (const auto& [limit, said] : {std::pair("8", "UNISONO_STALL_SECONDS=2\n"),
                                    std::pair("60", "UNISONO_STALL_SECONDS=5\n")}) {
    const RunResult result = run_to_end(
        {.arguments = probe({"--stall-timeout", limit}, {"environment", "UNISONO_STALL_SECONDS"}),
         .environment = {"UNISONO_STALL_SECONDS"}});
    EXPECT_EQ(result.out, said) << result.err;
  }
}

class LaunchStallOfNodes : public ::testing::Test {
 protected:
  // Runs a job of two nodes with two ranks each and returns the results of its launchers.
  [[nodiscard]] std::vector<RunResult> run(Words options, const std::string& how, int rank) const {
    const auto setup = [&](int node) {
      Words all{"--nnodes=2", "-n", "2"};
      all.push_back("--rdzv_endpoint=127.0.0.1:" + std::to_string(reserved_.port()));
      all.insert(all.end(), options.begin(), options.end());
      // Separate node ids disable shared memory between the nodes, as on two machines.
      return RunSetup{.arguments = stalling(all, how, rank),
                      .environment = {"UNISONO_NODE_ID=node" + std::to_string(node)}};
    };
    LaunchRun first(setup(0));
    LaunchRun second(setup(1));
    std::vector<RunResult> results{first.finish(), second.finish()};
    EXPECT_THAT(first.wait_until_all_gone(), IsEmpty());
    EXPECT_THAT(second.wait_until_all_gone(), IsEmpty());
    return results;
  }

 private:
  net::PortReservation reserved_{net::resolve("127.0.0.1", 0).front()};
};

TEST_F(LaunchStallOfNodes, ARankOfEitherNodeIsGivenUp) {
  for (const int rank : {0, 3}) {
    for (const RunResult& result : run({}, "stops", rank)) {
      EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
      EXPECT_THAT(
          result.err,
          AllOf(ContainsRegex("rank " + std::to_string(rank) +
                              " \\(.+, pid [0-9]+\\) was aborted after .*: others have waited for "
                              "it for [2-9]\\.[0-9] s .*, and its process is stopped\n"),
                ContainsRegex("waiting ranks: ranks? .* in all_reduce #5 ")));
    }
  }
}

TEST_F(LaunchStallOfNodes, AfterItAllStartAgain) {
  for (const std::string n_nodes : {"2", "1:2"}) {
    for (const RunResult& result : run({"--max_restarts=1", "--nnodes", n_nodes}, "sleeps", 2)) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_EQ(count(result.out, "is done: 1\n"), 2) << result.out;
      EXPECT_THAT(result.err, ContainsRegex("before restart 1, rank 2 .* was aborted"));
    }
  }
}

TEST_F(LaunchStallOfNodes, WaitsThatEndInTimeAreNone) {
  for (const RunResult& result : run(kLonger, "pauses", 3)) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("was aborted")));
  }
}

TEST(LaunchStall, OneCommandForSeveralHostsHasItToo) {
  const RunResult result =
      run_to_end({.arguments = stalling({"--hosts", "127.0.0.1:1,localhost:1"}, "stops", 1)});
  EXPECT_EQ(result.exit_code, kGivenUp) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("rank 1 \\(localhost, pid [0-9]+\\) was aborted"));
}

}  // namespace
}  // namespace unisono::launch_test
