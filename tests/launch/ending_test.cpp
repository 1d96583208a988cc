// End of a job after a failed rank or a signal.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LaunchEnding, AFailingRankEndsAllAndIsReported) {
  const RunResult result = run_to_end({.arguments = probe({"-n", "4"}, {"fail", "3", "3"})});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("rank 3 \\(pid [0-9]+\\) failed after [0-9.]+ s: exit code 3\n"),
                    HasSubstr("  its last line:\n[unisono run]   | last words\n"),
                    Not(HasSubstr("| first\n")),
                    HasSubstr("ended because of it: ranks 0-2 (killed by SIGTERM)")));
  EXPECT_EQ(count(result.err, "failed after"), 1);
}

TEST(LaunchEnding, OutputThatWasNotShownIsInTheReport) {
  const test::TemporaryFolder folder;
  const RunResult result =
      run_to_end({.arguments = probe({"-n", "2", "--log-dir", folder.path(), "--redirects", "3"},
                                     {"fail", "1", "3"})});
  EXPECT_THAT(result.err,
              HasSubstr("  its last lines:\n"
                        "[unisono run]   | first\n"
                        "[unisono run]   | last words\n"));
}

// A rank may end this way after it has saved its state.
TEST(LaunchEnding, ARankThatEndsWellWhenItIsAskedToIsNotReported) {
  const RunResult result = run_to_end(
      {.arguments = {"run",
                     "-n",
                     "2",
                     "sh",
                     "-c",
                     "trap 'echo saved; exit 0' TERM; echo ready; "
                     "[ $RANK = 0 ] || { sleep 0.5; exit 3; }; while :; do sleep 0.05; done"}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr("saved"));
  EXPECT_THAT(result.err, Not(HasSubstr("ended because of it")));
}

TEST(LaunchEnding, AKilledRankEndsAllAndIsReported) {
  const RunResult result = run_to_end({.arguments = probe({"-n", "4"}, {"fail", "2", "kill"})});
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.err, ContainsRegex("rank 2 \\(pid [0-9]+\\) failed .*: killed by SIGKILL"));
  EXPECT_THAT(result.err, ContainsRegex("SIGKILL came from outside|memory ran out"));
}

// The rank writes the error file as `@record` of torch.distributed.elastic does.
TEST(LaunchEnding, AnExceptionThatARankLeftIsReported) {
  const std::string script =
      "test $RANK = 0 && exec sleep 60; "
      R"(echo '{"message": {"message": "ValueError: no such data"}}' >$TORCHELASTIC_ERROR_FILE; )"
      "exit 4";
  const RunResult result = run_to_end({.arguments = {"run", "-n", "2", "sh", "-c", script}});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err,
              ContainsRegex("rank 1 [(]pid [0-9]+[)] failed [^\n]*exit code 4\n"
                            "[^\n]*  its exception: ValueError: no such data\n"));
}

TEST(LaunchEnding, ARankThatIgnoresSigtermIsKilledAfterTheGrace) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  LaunchRun run({.arguments = {"run",
                               "-n",
                               "3",
                               "--grace",
                               "0.2",
                               "sh",
                               "-c",
                               "[ $RANK = 0 ] || exec " UNISONO_PROBE " ignore-term; read x; "
                               "exit 9"},
                 .stdin_fd = read_end.get()});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::write(write_end.get(), "\n", 1), 1);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, HasSubstr("rank 0 (pid"));
  EXPECT_THAT(result.err, HasSubstr("ended because of it: ranks 1-2 (killed by SIGKILL)"));
  EXPECT_TRUE(run.marked().empty());
}

TEST(LaunchEnding, WithoutGraceRanksAreKilledAtOnce) {
  LaunchRun run({.arguments = probe({"-n", "2", "--grace", "0"}, {"ignore-term"})});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  EXPECT_EQ(run.finish().exit_code, 143);
  EXPECT_TRUE(run.marked().empty());
}

TEST(LaunchEnding, StoppedRanksAreEndedToo) {
  for (const char* action : {"wait", "ignore-term"}) {
    LaunchRun run({.arguments = probe({"-n", "2", "--grace", "0.2"}, {action})});
    run.wait_for_output("ready", 2);
    const pid_t guardian = run.guardian();
    for (const pid_t pid : run.marked()) {
      if (pid != run.pid() && pid != guardian) {
        ASSERT_EQ(::kill(pid, SIGSTOP), 0);
      }
    }
    ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
    EXPECT_EQ(run.finish().exit_code, 143);
    EXPECT_TRUE(run.marked().empty());
  }
}

TEST(LaunchEnding, ARankThatEndsEarlyWithSuccessIsNoFailure) {
  const RunResult result = run_to_end(
      {.arguments = {"run", "-n", "3", "sh", "-c", "[ $RANK = 0 ] || { read x; echo done; }"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "done\ndone\n");
  EXPECT_EQ(result.err, "");
}

struct Forwarded {
  int signal_number;
  int exit_code;

  friend std::ostream& operator<<(std::ostream& out, const Forwarded& forwarded) {
    return out << "signal " << forwarded.signal_number;
  }
};

class LaunchSignal : public ::testing::TestWithParam<Forwarded> {};

TEST_P(LaunchSignal, ReachesEveryRankAndIsTheExitCode) {
  const auto [signal_number, exit_code] = GetParam();
  LaunchRun run({.arguments = probe({"-n", "3"}, {"tell-signal"})});
  run.wait_for_output("ready", 3);
  ASSERT_EQ(::kill(run.pid(), signal_number), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(count(result.out, "got " + std::to_string(signal_number) + "\n"), 3) << result.out;
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_TRUE(run.marked().empty());
}

INSTANTIATE_TEST_SUITE_P(Signals,
                         LaunchSignal,
                         ::testing::Values(Forwarded{SIGINT, 130},
                                           Forwarded{SIGTERM, 143},
                                           Forwarded{SIGHUP, 129},
                                           Forwarded{SIGUSR1, 0}),
                         [](const auto& tested) {
                           return "Signal" + std::to_string(tested.param.signal_number);
                         });

TEST(LaunchEnding, AnIgnoredInterruptBecomesSigtermAndSigkill) {
  LaunchRun run({.arguments = probe({"-n", "2", "--grace", "0.1"}, {"ignore-term"})});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.pid(), SIGINT), 0);
  EXPECT_EQ(run.finish().exit_code, 130);
  EXPECT_TRUE(run.marked().empty());
}

TEST(LaunchEnding, VerboseSaysWhatHappens) {
  const RunResult result = run_to_end(
      {.arguments = probe({"-n", "2", "--verbose"}, {"args"}), .environment = {"OMP_NUM_THREADS"}});
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("OMP_NUM_THREADS="),
                    ContainsRegex("rank 1 is pid [0-9]+\n"),
                    HasSubstr("rank 0: exit code 0\n")));
}

}  // namespace
}  // namespace unisono::launch_test
