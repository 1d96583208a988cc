// spawn(): a program starts its own ranks.
#include <signal.h>

#include <algorithm>
#include <string>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RunSetup program(const std::string& mode) {
  return {.arguments = {mode}, .program = UNISONO_SPAWN_PROGRAM};
}

TEST(Spawn, RunsTheFunctionOnEachRankWithItsArguments) {
  const RunResult result = run_to_end(program("sum"));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> lines = split_lines(result.out);
  std::ranges::sort(lines);
  EXPECT_THAT(lines,
              ElementsAre("again 0 of 2: 1",
                          "again 1 of 2: 1",
                          "done",
                          "rank 0 of 3: 30",
                          "rank 1 of 3: 30",
                          "rank 2 of 3: 30"));
}

TEST(Spawn, StartsRanksInARankOfAnotherJob) {
  const RunResult result =
      run_to_end({.arguments = {"run", "-n", "1", UNISONO_SPAWN_PROGRAM, "sum"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, " of 3: 30\n"), 3) << result.out;
}

TEST(Spawn, RanksMayMeetAtAPortOfTheirOwn) {
  const net::PortReservation reserved(net::resolve("127.0.0.1", 0).front());
  const RunResult result = run_to_end(
      {.arguments = {"port", std::to_string(reserved.port())}, .program = UNISONO_SPAWN_PROGRAM});
  EXPECT_EQ(count(result.out, " of 2: 1\n"), 2) << result.out << result.err;
}

TEST(Spawn, ARankThatFailsEndsTheOthersAndIsNamed) {
  const auto said = [](const std::string& mode) {
    const RunResult result = run_to_end(program(mode));
    EXPECT_EQ(result.exit_code, 3) << result.out << result.err;
    return result.out;
  };
  EXPECT_THAT(said("throw"),
              ContainsRegex("error of rank 1, code 1: spawn: rank 1 \\(pid [0-9]+\\) failed: it "
                            "threw: no data there\n"));
  EXPECT_THAT(said("exit"), HasSubstr("code 5: spawn: rank 1"));
  EXPECT_THAT(said("kill"), AllOf(HasSubstr("code 137"), HasSubstr("killed by SIGKILL")));
}

TEST(Spawn, ARankThatIsAskedToEndHasItsTimeAndItsProcesses) {
  const RunResult result = run_to_end(program("save"));
  EXPECT_EQ(count(result.out, "saved\n"), 2) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("error of rank 1, code 5"));
  EXPECT_THAT(result.err, Not(HasSubstr("SIGKILL for")));
}

TEST(Spawn, RanksThatAreKilledAreNamed) {
  EXPECT_THAT(
      run_to_end(program("stubborn")).err,
      HasSubstr("[unisono spawn] warning: SIGKILL for ranks 0, 2, which had not ended 0.3 s "
                "after SIGTERM; SpawnOptions::grace gives more time\n"));
}

TEST(Spawn, AHandleWaitsForItsRanks) {
  const RunResult result = run_to_end(program("handle"));
  EXPECT_EQ(result.out, "2 ranks\nrunning\nover\n") << result.err;
  EXPECT_EQ(run_to_end(program("daemon")).out, "ends them\n");
}

TEST(Spawn, RanksEndWithTheProgram) {
  LaunchRun run(program("wait"));
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.pid(), SIGKILL), 0);
  (void)run.finish();
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST(Spawn, WrongCallsAreErrors) {
  EXPECT_THAT(run_to_end(program("none")).out, HasSubstr("error: spawn: nprocs is 0: at least 1"));
  EXPECT_THAT(run_to_end(program("nested")).out,
              HasSubstr("it threw: spawn: a rank can't spawn others"));
}

}  // namespace
}  // namespace unisono::launch_test
