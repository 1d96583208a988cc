// --max-restarts: after the failure of a rank, all ranks are ended and started again.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/ports.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::read_file;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Returns "run", `options` and a shell with `script`. $C is the number of restarts so far.
std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(), "run");
  options.insert(options.end(), {"sh", "-c", "C=$TORCHELASTIC_RESTART_COUNT; " + script});
  return options;
}

TEST(LaunchRestart, AFailingRankStartsAllAgain) {
  const RunResult result =
      run_to_end({.arguments = shell({"-n", "2", "--max-restarts", "2", "--monitor-interval=1"},
                                     "[ $RANK$C = 10 ] && exit 3; [ $C = 0 ] && exec sleep 100; "
                                     "echo rank $RANK count $C of $TORCHELASTIC_MAX_RESTARTS")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> lines = split_lines(result.out);
  std::ranges::sort(lines);
  EXPECT_THAT(lines, ::testing::ElementsAre("rank 0 count 1 of 2", "rank 1 count 1 of 2"));
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("rank 1 \\(pid [0-9]+\\) failed after [0-9.]+ s: exit code 3\n"),
                    HasSubstr("ended because of it: rank 0 (killed by SIGTERM)\n"),
                    HasSubstr("restart 1 of 2\n"),
                    HasSubstr("1 of 2 restarts used:\n"),
                    ContainsRegex("before restart 1, rank 1 \\(pid [0-9]+\\) failed")));
}

TEST(LaunchRestart, AfterTheLastOneTheFailureIsTheJobs) {
  const RunResult result = run_to_end(
      {.arguments = shell({"-n", "1", "--max_restarts=2"}, "echo words $C; exit $((10 + C))")});
  EXPECT_EQ(result.exit_code, 12);
  EXPECT_EQ(result.out, "words 0\nwords 1\nwords 2\n");
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("before restart 1, rank 0 .*: exit code 10\n"),
                    ContainsRegex("before restart 2, rank 0 .*: exit code 11\n")));
  EXPECT_EQ(count(result.err, "| words 0\n"), 1) << "a report has a generation's own last lines";
  EXPECT_EQ(count(result.err, "| words 2\n"), 1) << result.err;
}

TEST(LaunchRestart, WithoutRestartsNothingIsSaidOfThem) {
  const RunResult result = run_to_end({.arguments = shell({"-n", "2"}, "exit 3")});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, Not(HasSubstr("restart")));
}

// A daemon of the first generation ignores every signal that can be ignored.
TEST(LaunchRestart, NothingOfTheLastGenerationIsThereWhenTheNextStarts) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  LaunchRun run({.arguments = shell({"-n", "2", "--max-restarts", "1", "--grace", "0.1"},
                                    "[ $C = 1 ] && exec " UNISONO_PROBE " wait; "
                                    "[ $RANK = 1 ] && exec " UNISONO_PROBE " daemon; "
                                    "echo ready; read x; exit 9"),
                 .stdin_fd = read_end.get()});
  run.wait_for_output("ready", 2);
  EXPECT_EQ(run.marked().size(), 5U);
  ASSERT_EQ(::write(write_end.get(), "\n", 1), 1);
  run.wait_for_output("ready", 4);
  EXPECT_EQ(run.marked().size(), 4U);  // Launcher, guardian and two ranks.
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  EXPECT_EQ(run.finish().exit_code, 143);
  EXPECT_THAT(run.marked(), IsEmpty());
}

TEST(LaunchRestart, EachGenerationHasAStoreOfItsOwn) {
  const std::string store = UNISONO_PROGRAM " store";
  const std::string at = " --host $MASTER_ADDR --port $MASTER_PORT";
  const std::string script = "[ $C = 0 ] && { " + store + " set" + at + " old value; " + store +
                             " list" + at + "; exit 3; }; " + store + " set" + at + " new value; " +
                             store + " list" + at;
  const net::PortReservation reserved(net::resolve("127.0.0.1", 0).front());
  for (const std::string& port : {std::string("0"), std::to_string(reserved.port())}) {
    const RunResult result =
        run_to_end({.arguments = shell({"--max-restarts", "1", "--master-port", port}, script)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(count(result.out, "old"), 1) << result.out;
    EXPECT_EQ(count(result.out, "new"), 1) << result.out;
  }
}

TEST(LaunchRestart, RanksThatMeetAgainComputeTogether) {
  const RunResult result = run_to_end(
      {.arguments = shell({"-n", "3", "--max-restarts", "1"},
                          "[ $RANK$C = 20 ] && kill -9 $$; exec " UNISONO_RANK_PROGRAM)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("rank 2 .*: killed by SIGKILL"));
}

TEST(LaunchRestart, LogFilesHoldAllGenerations) {
  const TemporaryFolder folder;
  const RunResult result =
      run_to_end({.arguments = shell({"--max-restarts", "1", "--log-dir", folder.path()},
                                     "echo words $C; exit $((1 - C))")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_file(folder.path() + "/rank-0.out"), "words 0\nwords 1\n");
}

TEST(LaunchRestart, ASignalEndsTheJobForGood) {
  LaunchRun run({.arguments = probe({"-n", "2", "--max-restarts", "3"}, {"wait"})});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.pid(), SIGINT), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(count(result.out, "ready"), 2);
  EXPECT_THAT(result.err, Not(HasSubstr("restart")));
}

// Such a job spends most of its time between generations.
TEST(LaunchRestart, ASignalBetweenGenerationsEndsTheJobToo) {
  LaunchRun run({.arguments = shell({"--max-restarts", "1000000"}, "echo generation; exit 3")});
  run.wait_for_output("generation", 5);
  ASSERT_EQ(::kill(run.pid(), SIGINT), 0);
  const RunResult result = run.finish();
  EXPECT_THAT(result.exit_code, AnyOf(130, 3)) << "3 where it came just as the rank had failed";
  EXPECT_LE(count(result.out, "generation"), 7);
  EXPECT_THAT(run.marked(), IsEmpty());
}

TEST(LaunchRestart, AProgramThatCantBeExecutedIsNotTriedAgain) {
  const TemporaryFolder folder;
  const std::string script = folder.write("script", "#!/no/such/interpreter\n", 0755);
  const RunResult result = run_to_end({.arguments = {"run", "--max-restarts", "3", script}});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_EQ(split_lines(result.err).size(), 1U) << result.err;
}

// The second generation has the signal mask of the first, although the launcher has blocked signals
// since.
TEST(LaunchRestart, ALostGuardianIsAFailureLikeARanks) {
  LaunchRun run(
      {.arguments = shell({"-n", "2", "--max-restarts", "1"},
                          "grep SigBlk /proc/self/status; [ $C = 0 ] && exec " UNISONO_PROBE
                          " wait; exec " UNISONO_RANK_PROGRAM)});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.guardian(), SIGKILL), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "SigBlk:\t0000000000000000\n"), 4) << result.out;
  EXPECT_EQ(count(result.out, "all_reduce(ones)=2"), 2) << result.out;
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("the guardian process \\(pid [0-9]+\\) was killed, so its ranks "
                                  "were ended\n"),
                    HasSubstr("restart 1 of 1\n"),
                    ContainsRegex("before restart 1, the guardian process \\(pid")));
  EXPECT_THAT(run.marked(), IsEmpty());
}

TEST(LaunchRestart, EachLostGuardianUsesUpARestart) {
  LaunchRun run({.arguments = probe({"-n", "2", "--max-restarts", "1"}, {"daemon"})});
  for (const int n_ready : {2, 4}) {
    run.wait_for_output("ready", n_ready);
    ASSERT_EQ(::kill(run.guardian(), SIGKILL), 0);
  }
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(count(result.err, "restart 1 of 1\n"), 1) << result.err;
  EXPECT_THAT(run.marked(), IsEmpty());
}

}  // namespace
}  // namespace unisono::launch_test
