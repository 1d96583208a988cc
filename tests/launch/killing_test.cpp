// Nothing is left behind, whoever is killed.
#include <signal.h>

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launch_run.h"

namespace unisono::launch_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LaunchKilling, WhatARankLeftBehindEndsWithTheJob) {
  const RunResult result =
      run_to_end({.arguments = probe({"-n", "2", "--grace", "0.1"}, {"daemon", "exit"})});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(count(result.out, "ready\n"), 2);
}

TEST(LaunchKilling, GrandchildrenEndWhenARankFails) {
  const RunResult result =
      run_to_end({.arguments = {"run",
                                "-n",
                                "2",
                                "--grace",
                                "0.1",
                                "sh",
                                "-c",
                                UNISONO_PROBE " daemon exit; [ $RANK = 0 ] && exit 4; sleep 100"}});
  EXPECT_EQ(result.exit_code, 4) << result.err;
}

TEST(LaunchKilling, AKilledLauncherTakesAllWithIt) {
  LaunchRun run({.arguments = probe({"-n", "3"}, {"daemon"})});
  run.wait_for_output("ready", 3);
  EXPECT_EQ(run.marked().size(), 8U);  // Launcher, guardian, three ranks with a daemon each.
  ASSERT_EQ(::kill(run.pid(), SIGKILL), 0);
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST(LaunchKilling, AStoppedGuardianWakesWhenTheLauncherIsKilled) {
  LaunchRun run({.arguments = probe({"-n", "2"}, {"wait"})});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.guardian(), SIGSTOP), 0);
  ASSERT_EQ(::kill(run.pid(), SIGKILL), 0);
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST(LaunchKilling, AKilledGuardianIsAnErrorAndNothingIsLeft) {
  LaunchRun run({.arguments = probe({"-n", "3"}, {"daemon"})});
  run.wait_for_output("ready", 3);
  ASSERT_EQ(::kill(run.guardian(), SIGKILL), 0);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("guardian process"));
  EXPECT_THAT(run.marked(), IsEmpty());
}

TEST(LaunchKilling, TheGuardianOutlivesSignalsMeantForAll) {
  LaunchRun run({.arguments = probe({"-n", "2"}, {"wait"})});
  run.wait_for_output("ready", 2);
  const pid_t guardian = run.guardian();
  for (const int signal_number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    ASSERT_EQ(::kill(guardian, signal_number), 0);
  }
  EXPECT_EQ(run.guardian(), guardian);
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  EXPECT_EQ(run.finish().exit_code, 143);
  EXPECT_THAT(run.marked(), IsEmpty());
}

}  // namespace
}  // namespace unisono::launch_test
