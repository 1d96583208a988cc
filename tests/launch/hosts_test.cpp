// Jobs that one command starts on several hosts. All hosts are this machine here, behind a fake
// remote shell. tests/launchers/test_ssh.py uses the real ssh.
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<std::string>;

// Called as PROGRAM HOST COMMAND. A real remote shell may also write text before the command's
// output.
constexpr const char* kShell =
    "#!/bin/sh\n"
    "echo \"Welcome to $1\"\n"
    "case $1 in\n"
    "  unknown) echo 'Could not resolve hostname unknown' >&2; exit 255;;\n"
    "  silent) exec sleep 60;;\n"
    "  bare) exec /nothing/there;;\n"
    "  once) if test -e $0.once; then exit 255; fi; touch $0.once;;\n"
    "esac\n"
    "name=$1\n"
    "shift\n"
    "cd /\n"
    "test $name != piped || { cat | sh -c \"$*\" | cat; exit 0; }\n"
    "exec sh -c \"$*\"\n";

class LaunchHosts : public ::testing::Test {
 protected:
  // Returns the arguments "run" with these hosts, the options and a shell script.
  [[nodiscard]] Words command(const std::string& hosts,
                              const Words& options,
                              const std::string& script) const {
    Words words{"run", "--hosts", hosts, "--rsh", shell_, "--master-addr", "127.0.0.1"};
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), {"sh", "-c", script});
    return words;
  }

  [[nodiscard]] RunResult run(const std::string& hosts,
                              const Words& options,
                              const std::string& script,
                              const Words& environment = {}) const {
    return run_to_end({.arguments = command(hosts, options, script), .environment = environment});
  }

  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }

 private:
  TemporaryFolder folder_;
  std::string shell_ = folder_.write("rsh", kShell, 0755);
};

// Prints "ready" and waits.
constexpr const char* kHang = "exec " UNISONO_PROBE " wait";

Words sorted_lines(const std::string& text) {
  Words lines = split_lines(text);
  std::ranges::sort(lines);
  return lines;
}

TEST_F(LaunchHosts, OutputIsThatOfAllRanksWithHostAndRank) {
  const RunResult result =
      run("alpha:2,beta:1", {}, "echo $RANK of $WORLD_SIZE, node $GROUP_RANK; echo oops >&2");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(
      sorted_lines(result.out),
      ElementsAre(
          "[alpha:0] 0 of 3, node 0", "[alpha:1] 1 of 3, node 0", "[beta:2] 2 of 3, node 1"));
  EXPECT_THAT(split_lines(result.err),
              AllOf(Contains("[alpha:0] oops"),
                    Contains("[beta:2] oops"),
                    Contains("[unisono run] alpha: Welcome to alpha")));
}

TEST_F(LaunchHosts, RanksMeet) {
  for (const char* hosts : {"alpha:2,beta:2", "alpha:4"}) {
    const RunResult result = run(hosts, {}, UNISONO_RANK_PROGRAM);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(count(result.out, "all_reduce(ones)=4"), 4) << result.out;
  }
}

TEST_F(LaunchHosts, MayComeFromAFile) {
  const std::string file = folder().write("hosts", "alpha slots=1\nbeta:1\n");
  Words words = command("", {}, "echo $RANK");
  words[1] = "--hostfile";
  words[2] = file;
  const RunResult result = run_to_end({.arguments = words});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("[alpha:0] 0", "[beta:1] 1"));
}

TEST_F(LaunchHosts, ThatComeAgainHaveARankForEachTime) {
  for (const char* hosts : {"alpha,beta,alpha", "alpha, alpha, beta", "2*alpha beta:1"}) {
    const RunResult result = run(hosts, {}, "echo $RANK");
    EXPECT_EQ(result.exit_code, 0) << hosts << result.err;
    EXPECT_THAT(sorted_lines(result.out), ElementsAre("[alpha:0] 0", "[alpha:1] 1", "[beta:2] 2"))
        << hosts;
  }
}

TEST_F(LaunchHosts, MayHaveTheTasksThatSlurmGaveEach) {
  const RunResult result = run("n[1-3]", {"-n", "2,1(x2)"}, "echo $RANK of $WORLD_SIZE");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out),
              ElementsAre("[n1:0] 0 of 4", "[n1:1] 1 of 4", "[n2:2] 2 of 4", "[n3:3] 3 of 4"));
}

TEST_F(LaunchHosts, ThisMachineNeedsNoShell) {
  const RunResult result = run_to_end(
      {.arguments = {"run", "-H", "127.0.0.1,localhost", "-n", "1", UNISONO_RANK_PROGRAM}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "all_reduce(ones)=2"), 2) << result.out;
}

TEST_F(LaunchHosts, FolderSettingsAndNamedVariablesGoAlong) {
  const RunResult result = run("alpha,beta",
                               {"-x", "COLOUR", "-x", "SIZE=7 m", "-n", "1"},
                               "echo $PWD $COLOUR $SIZE ${SHAPE-none} $UNISONO_STALL_SECONDS",
                               {"COLOUR=red", "SHAPE=round", "UNISONO_STALL_SECONDS=77"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  // The remote shell inherits the caller's environment here, unlike over ssh.
  EXPECT_EQ(count(result.out, " red 7 m round 77\n"), 2) << result.out;
  EXPECT_THAT(result.out, Not(HasSubstr("] / ")));
}

TEST_F(LaunchHosts, TheSecretIsInNoCommandLine) {
  // printf is a shell builtin, and grep reads the secret from a file.
  const RunResult result = run("alpha,beta",
                               {"-n", "1"},
                               "file=" + folder().path() +
                                   "/$RANK; printf %s \"$UNISONO_SECRET\" >$file; grep -lFf $file "
                                   "/proc/[0-9]*/cmdline; wc -c <$file",
                               {"UNISONO_SECRET"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("[alpha:0] 64", "[beta:1] 64"));
}

TEST_F(LaunchHosts, TheFirstFailureIsTheCauseAndTheReportComesOnce) {
  const RunResult result =
      run("alpha:1,beta:1", {}, "if test $RANK = 1; then echo broken >&2; exit 7; fi; sleep 60");
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_EQ(count(result.err, "rank 1 (beta, pid "), 1) << result.err;
  EXPECT_EQ(count(result.err, "broken"), 2) << "as it is written and as the last line";
  EXPECT_THAT(split_lines(result.err).back(), HasSubstr("[unisono run]"));
  EXPECT_THAT(result.err, ContainsRegex("rank 1 [(]beta, pid [0-9]+[)].*exit code 7"));
}

TEST_F(LaunchHosts, RestartsAreOfAllHosts) {
  const RunResult result = run("alpha:1,beta:1",
                               {"--max_restarts", "1"},
                               "test $TORCHELASTIC_RESTART_COUNT = 1 || exit $RANK; echo again");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(sorted_lines(result.out), ElementsAre("[alpha:0] again", "[beta:1] again"));
  EXPECT_EQ(count(result.err, "restart 1 of 1\n"), 1) << result.err;
  EXPECT_EQ(count(result.err, "failed after"), 1) << result.err;
}

TEST_F(LaunchHosts, AHostThatCantBeReachedIsTheCause) {
  const RunResult result = run("alpha:1,unknown:1", {}, "sleep 60");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("unknown: unisono could not be started there"),
                    HasSubstr("ended with exit code 255"),
                    HasSubstr("Could not resolve hostname unknown")));
}

TEST_F(LaunchHosts, AHostWithoutUnisonoIsTheCause) {
  const RunResult result = run("alpha:1,bare:1", {}, "sleep 60");
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("bare: unisono could not be started there"),
                    HasSubstr("unisono at the same path")));
}

TEST_F(LaunchHosts, AProgramThatIsMissingThereIsTheCause) {
  Words words = command("alpha:1,beta:1", {}, "");
  words.resize(words.size() - 3);
  words.emplace_back("/nothing/there");
  const RunResult result = run_to_end({.arguments = words});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err, AllOf(HasSubstr("/nothing/there"), ContainsRegex("alpha: |beta: ")));
}

TEST_F(LaunchHosts, ASignalReachesAllRanks) {
  LaunchRun run({.arguments = command("alpha:1,beta:1", {}, kHang)});
  run.wait_for_output("ready", 2);
  ::kill(run.pid(), SIGTERM);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_THAT(result.err, HasSubstr("ended by SIGTERM"));
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

// A remote shell that the signal ends would also end the host's ranks.
TEST_F(LaunchHosts, ASignalToTheProcessGroupLeavesTheRemoteShells) {
  LaunchRun run({.arguments = command("piped:2,alpha:1", {}, "exec " UNISONO_PROBE " save 1"),
                 .own_session = true});
  run.wait_for_output("ready", 3);
  ::kill(-run.pid(), SIGTERM);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM);
  EXPECT_EQ(count(result.out, "saved\n"), 3) << result.out << result.err;
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST_F(LaunchHosts, InterruptsReachRanksAsSuch) {
  LaunchRun run({.arguments = command("alpha:1,beta:1",
                                      {},
                                      "trap 'echo interrupted; exit 0' INT; echo ready; while :; "
                                      "do sleep 0.05; done")});
  run.wait_for_output("ready", 2);
  ::kill(run.pid(), SIGINT);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGINT);
  EXPECT_EQ(count(result.out, "interrupted"), 2) << result.out << result.err;
}

TEST_F(LaunchHosts, NothingIsLeftWhenTheLauncherIsKilled) {
  LaunchRun run({.arguments = command("alpha:1,beta:2", {}, kHang)});
  run.wait_for_output("ready", 3);
  ::kill(run.pid(), SIGKILL);
  (void)run.finish();
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

// Prints the process id of the rank's launcher, which is the parent of the rank's guardian.
const std::string kTellLauncher =
    "while read key value; do test $key = PPid: && echo launcher $value; done "
    "</proc/$PPID/status; ";

// Call after all ranks are ready.
void kill_launcher_of(const std::string& label, const LaunchRun& run) {
  const std::string before = "[" + label + "] launcher ";
  for (const std::string& line : split_lines(run.output())) {
    if (line.starts_with(before)) {
      ::kill(std::stoi(line.substr(before.size())), SIGKILL);
      return;
    }
  }
  FAIL() << "no launcher of " << label << " in " << run.output();
}

TEST_F(LaunchHosts, ALauncherThatIsLostIsStartedAgain) {
  LaunchRun run(
      {.arguments = command("alpha:1,beta:1",
                            {"--max_restarts", "1"},
                            "test $TORCHELASTIC_RESTART_COUNT = 1 && exec " +
                                std::string(UNISONO_RANK_PROGRAM) + "; " + kTellLauncher + kHang)});
  run.wait_for_output("ready", 2);
  kill_launcher_of("beta:1", run);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "all_reduce(ones)=2"), 2) << result.out;
  EXPECT_THAT(result.err, HasSubstr("beta: its launcher is lost; "));
  EXPECT_EQ(count(result.err, "it is started again"), 1) << result.err;
}

TEST_F(LaunchHosts, ALostGuardianIsAFailureLikeARanks) {
  for (const std::size_t which : {0U, 1U}) {
    LaunchRun run({.arguments = command("alpha:1,beta:1",
                                        {"--max_restarts", "2"},
                                        "test $TORCHELASTIC_RESTART_COUNT = 1 && exec " +
                                            std::string(UNISONO_RANK_PROGRAM) + "; " + kHang)});
    run.wait_for_output("ready", 2);
    const std::vector<pid_t> guardians = run.guardians();
    ASSERT_EQ(guardians.size(), 2U);
    ASSERT_EQ(::kill(guardians[which], SIGKILL), 0);
    const RunResult result = run.finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(count(result.out, "all_reduce(ones)=2"), 2) << result.out;
    EXPECT_THAT(
        result.err,
        AllOf(ContainsRegex("the guardian process [(](alpha|beta), pid [0-9]+[)] was killed"),
              HasSubstr("restart 1 of 2")));
    EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
  }
}

TEST_F(LaunchHosts, AHostThatDoesNotComeBackIsTriedUntilTheJobEnds) {
  LaunchRun run(
      {.arguments = command("alpha:1,once:1", {"--max_restarts", "1"}, kTellLauncher + kHang)});
  run.wait_for_output("ready", 2);
  kill_launcher_of("once:1", run);
  run.wait_for_error("once: its launcher is lost");
  run.wait_for_error("once: unisono could not be started there");
  ::kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish().exit_code, 128 + SIGTERM);
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST_F(LaunchHosts, TheFirstLauncherLeadsTheJobAndIsNotStartedAgain) {
  LaunchRun run(
      {.arguments = command("alpha:1,beta:1", {"--max_restarts", "1"}, kTellLauncher + kHang)});
  run.wait_for_output("ready", 2);
  kill_launcher_of("alpha:0", run);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_EQ(count(result.err, "it is started again"), 0) << result.err;
}

TEST_F(LaunchHosts, ALostLauncherIsTheCause) {
  LaunchRun run({.arguments = command("alpha:1,beta:1", {}, kTellLauncher + kHang)});
  run.wait_for_output("ready", 2);
  kill_launcher_of("beta:1", run);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.err, HasSubstr("beta: its launcher is lost"));
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST_F(LaunchHosts, WhatExcludesEachOtherIsRefused) {
  struct Case {
    Words options;
    const char* part;
  };

  const std::vector<Case> cases{
      {{"-H", "alpha", "--nnodes", "2"}, "--nnodes and --hosts"},
      {{"-H", "alpha", "--node_rank", "0"}, "--node-rank and --hosts"},
      {{"-H", "alpha", "--rdzv_endpoint", "a:1"}, "--rdzv-endpoint and --hosts"},
      {{"-H", "alpha:2", "-n", "2"}, "leave one of them out"},
      {{"-H", "alpha:2,beta"}, "beta has none"},
      {{"-H", "alpha,alpha", "-n", "2"}, "leave one of them out"},
      {{"-H", "alpha", "-n", "2(x2)"}, "-n has the ranks of 2 hosts, and --hosts names 1"},
      {{"-n", "2(x2)"}, "goes with --hosts"},
      {{"-H", "alpha:x"}, "--hosts alpha:x"},
      {{"-H", "alpha", "--hostfile", "f"}, "exclude each other"},
      {{"--hostfile", "/nothing"}, "/nothing"},
      {{"-H", "alpha", "-x", "NOT_SET_ANYWHERE"}, "-x NOT_SET_ANYWHERE"},
  };
  for (const Case& each : cases) {
    Words words{"run"};
    words.insert(words.end(), each.options.begin(), each.options.end());
    words.emplace_back("true");
    const RunResult result = run_to_end({.arguments = words});
    EXPECT_THAT(result.exit_code, ::testing::AnyOf(1, 2));
    EXPECT_THAT(result.err, HasSubstr(each.part));
  }
}

TEST_F(LaunchHosts, AShellThatIsMissingIsNamed) {
  const RunResult result =
      run_to_end({.arguments = {"run", "-H", "alpha", "--rsh", "/no/shell", "true"}});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err, HasSubstr("/no/shell"));
}

TEST_F(LaunchHosts, ALauncherThatNobodyStartedSaysSo) {
  const RunResult result = run_to_end({.arguments = {"--unisono-host"}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("unisono run --hosts"));
}

}  // namespace
}  // namespace unisono::launch_test
