// Ranks that save their state after a termination signal with the help of their own child
// processes.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/launch/run.h"
#include "unisono/launch/spawn_ranks.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<std::string>;

// The slow run of these tests takes longer than any earlier limit without --grace.
std::string save_seconds() {
  const char* const given = std::getenv("UNISONO_TEST_SAVE_SECONDS");
  return given == nullptr ? "1" : given;
}

// Returns "run" with two ranks here, or with one rank on each of two hosts that are both this
// machine.
Words two_ranks(bool has_hosts, Words options, const std::string& script) {
  options.insert(options.begin(), "run");
  if (has_hosts) {
    options.insert(options.end(), {"--hosts", "127.0.0.1:1,localhost:1"});
  } else {
    options.insert(options.end(), {"-n", "2"});
  }
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

struct Saving {
  std::vector<int> signals;  // Empty: rank 1 fails.
  int exit_code;
  bool has_hosts;

  friend std::ostream& operator<<(std::ostream& out, const Saving& saving) {
    return out << saving.signals.size() << " signals, exit code " << saving.exit_code;
  }
};

class LaunchSavingTime : public ::testing::TestWithParam<Saving> {};

TEST_P(LaunchSavingTime, RanksHaveTheTimeThatTheyNeed) {
  const Saving& saving = GetParam();
  const TemporaryFolder folder;
  const std::string fail = "[ $RANK = 1 ] && { echo ready; while ! test -e " + folder.path() +
                           "/fail; do sleep 0.05; done; exit 3; }; ";
  const std::string script =
      (saving.signals.empty() ? fail : "") + "exec " UNISONO_PROBE " save " + save_seconds();
  LaunchRun run({.arguments = two_ranks(saving.has_hosts, {}, script)});
  run.wait_for_output("ready", 2);
  if (saving.signals.empty()) {
    (void)folder.write("fail", "", 0644);
  }
  for (const int signal_number : saving.signals) {
    ASSERT_EQ(::kill(run.pid(), signal_number), 0);
    run.wait_for_output("saving", 2);
  }
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, saving.exit_code) << result.err;
  EXPECT_EQ(count(result.out, "saved\n"), saving.signals.empty() ? 1 : 2)
      << result.out << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("SIGKILL for")));
  EXPECT_THAT(run.marked(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Endings,
                         LaunchSavingTime,
                         ::testing::Values(Saving{{SIGTERM}, 143, false},
                                           Saving{{SIGTERM, SIGTERM}, 143, false},
                                           Saving{{SIGINT}, 130, false},
                                           Saving{{SIGINT, SIGINT, SIGTERM}, 130, false},
                                           Saving{{}, 3, false},
                                           Saving{{SIGTERM}, 143, true},
                                           Saving{{SIGTERM, SIGTERM}, 143, true},
                                           Saving{{SIGINT}, 130, true},
                                           Saving{{}, 3, true}),
                         [](const auto& tested) {
                           const Saving& saving = tested.param;
                           std::string name = saving.signals.empty() ? "Failure" : "Signals";
                           for (const int signal_number : saving.signals) {
                             name += std::to_string(signal_number) + "_";
                           }
                           return name + (saving.has_hosts ? "Hosts" : "Local");
                         });

TEST(LaunchSaving, ThirtySecondsAreTheDefault) {
  EXPECT_EQ(launch::RunOptions{}.grace, std::chrono::seconds(30));
  EXPECT_EQ(SpawnOptions{}.grace, std::chrono::seconds(30));
  EXPECT_THAT(run_to_end({.arguments = {"run", "--help"}}).out,
              HasSubstr("before they are killed (default 30)"));
}

TEST(LaunchSaving, ALineNamesTheRanksThatAreKilled) {
  LaunchRun run({.arguments = probe({"-n", "2", "--grace", "1"}, {"ignore-term"})});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(result.err,
            "[unisono run] SIGKILL for ranks 0-1, which had not ended 1 s after SIGTERM; --grace "
            "SECONDS gives more time\n[unisono run] ended by SIGTERM\n");
}

TEST(LaunchSaving, ALineOfEachHostNamesItsRanksThatAreKilled) {
  LaunchRun run({.arguments = {"run",
                               "--hosts",
                               "127.0.0.1:2,localhost:1",
                               "--grace",
                               "0.5",
                               UNISONO_PROBE,
                               "ignore-term"}});
  run.wait_for_output("ready", 3);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("[unisono run on 127.0.0.1] SIGKILL for ranks 0-1, which had not "
                              "ended 0.5 s after SIGTERM; --grace"),
                    HasSubstr("[unisono run on localhost] SIGKILL for rank 2, which")));
}

TEST(LaunchSaving, WhoIsWaitedForIsSaidOnceItTakesLong) {
  LaunchRun run({.arguments = probe({"-n", "3", "--grace", "4"}, {"save", "2.5"})});
  run.wait_for_output("ready", 3);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(count(result.out, "saved\n"), 3) << result.err;
  EXPECT_EQ(
      result.err,
      "[unisono run] waiting for ranks 0-2 to end after SIGTERM; SIGKILL follows it after 4 s "
      "(--grace)\n[unisono run] ended by SIGTERM\n");
}

TEST(LaunchSaving, ASignalIsForTheRankAndNotForItsChild) {
  LaunchRun run({.arguments = probe({"-n", "2"}, {"ask-child"})});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.pid(), SIGUSR1), 0);
  run.wait_for_output("answered " + std::to_string(SIGUSR1), 2);
  run.wait_for_output("ready", 4);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(count(result.out, "answered " + std::to_string(SIGTERM)), 2) << result.out;
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(run.marked(), IsEmpty());
}

// A service that has left session and parent is a child of the guardian.
TEST(LaunchSaving, AServiceThatARankHasStartedServesItUntilItEnds) {
  const TemporaryFolder folder;
  const std::string pipes = folder.path() + "/$RANK";
  const std::string script =
      "mkfifo " + pipes + ".in " + pipes + ".out; (setsid sh -c 'echo service $$; exec cat <" +
      folder.path() + "/'$RANK'.in >" + folder.path() + "/'$RANK'.out' &); exec 3>" + pipes +
      ".in 4<" + pipes +
      ".out; trap 'sleep 0.5; echo question >&3; read answer <&4; echo got $answer; exit 0' TERM; "
      "echo ready; while :; do sleep 0.1; done";
  LaunchRun run({.arguments = two_ranks(false, {}, script)});
  run.wait_for_output("ready", 2);
  run.wait_for_output("service", 2);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(count(result.out, "got question\n"), 2) << result.out << result.err;
  EXPECT_THAT(run.marked(), IsEmpty());
}

// Rank 1 ends long before rank 0. The end of rank 1's child must not affect rank 0.
TEST(LaunchSaving, WhatARankLeavesEndsSoonAfterIt) {
  LaunchRun run({.arguments = two_ranks(false,
                                        {"--prefix"},
                                        "[ $RANK = 0 ] && exec " UNISONO_PROBE
                                        " save 3; exec " UNISONO_PROBE " ask-child stubborn")});
  run.wait_for_output("ready", 2);
  const std::size_t number = run.output().find("child ") + 6;
  const pid_t child = std::stoi(run.output().substr(number));
  ASSERT_EQ(::kill(child, 0), 0);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  run.wait_for_output("answered");
  const Deadline deadline = Deadline::after(std::chrono::seconds(2));
  while (::kill(child, 0) == 0 && !deadline.has_passed()) {
    ::usleep(10'000);
  }
  EXPECT_NE(::kill(child, 0), 0);
  EXPECT_THAT(run.output(), Not(HasSubstr("saved")));
  const RunResult result = run.finish();
  EXPECT_THAT(result.out, HasSubstr("[rank 0] saved\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("SIGKILL for")));
}

TEST(LaunchSaving, AProgramBehindAShellIsTheRank) {
  for (const int signal_number : {SIGTERM, SIGINT}) {
    for (const char* shell : {"sh", "bash"}) {
      LaunchRun run(
          {.arguments = {
               "run", "-n", "2", shell, "-c", "cd /; (" UNISONO_PROBE " save 1; true); true"}});
      run.wait_for_output("ready", 2);
      ASSERT_EQ(::kill(run.pid(), signal_number), 0);
      const RunResult result = run.finish();
      EXPECT_EQ(count(result.out, "saved\n"), 2) << shell << result.out << result.err;
      EXPECT_EQ(result.exit_code, 128 + signal_number);
      EXPECT_THAT(result.err, Not(HasSubstr("SIGKILL for")));
      EXPECT_THAT(run.marked(), IsEmpty());
    }
  }
}

TEST(LaunchSaving, AShellThatHandlesSigtermIsTheRankItself) {
  LaunchRun run(
      {.arguments = two_ranks(
           false,
           {},
           UNISONO_PROBE
           " tell-signal & trap 'sleep 0.2; kill -USR1 $!; wait $!; exit 0' TERM; wait")});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(count(result.out, "got " + std::to_string(SIGUSR1) + "\n"), 2) << result.out;
  EXPECT_THAT(run.marked(), IsEmpty());
}

}  // namespace
}  // namespace unisono::launch_test
