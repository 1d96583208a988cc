// A job leaves no process behind, whichever process is killed.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/process.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::read_file;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Holds a process as a debugger does. Unlike a process after SIGSTOP, SIGCONT does not continue the
// process.
class HeldProcess {
 public:
  explicit HeldProcess(pid_t pid) : pid_(pid) {
    EXPECT_EQ(::ptrace(PTRACE_SEIZE, pid_, nullptr, nullptr), 0);
    EXPECT_EQ(::ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr), 0);
    EXPECT_EQ(::waitpid(pid_, nullptr, __WALL), pid_);
  }

  HeldProcess(const HeldProcess&) = delete;
  HeldProcess& operator=(const HeldProcess&) = delete;
  HeldProcess(HeldProcess&&) = delete;
  HeldProcess& operator=(HeldProcess&&) = delete;

  ~HeldProcess() { ::ptrace(PTRACE_DETACH, pid_, nullptr, nullptr); }

  // The parent of the process receives its end only after this tracer.
  void expect_killed_within(std::chrono::seconds timeout) const {
    const Fd end = open_pidfd(pid_);
    pollfd ended{end.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&ended, 1, Deadline::after(timeout).poll_timeout_ms()), 1);
    int status = 0;
    ASSERT_EQ(::waitpid(pid_, &status, __WALL), pid_);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }

 private:
  pid_t pid_;
};

// Rank 0 exits with code 9 on demand. The other rank leaves a daemon behind and continues.
class FailingOnDemand {
 public:
  FailingOnDemand() : run_({.arguments = arguments(), .stdin_fd = read_end_.get()}) {
    run_.wait_for_output("ready", 2);
  }

  LaunchRun& run() { return run_; }

  void fail() { ASSERT_EQ(::write(write_end_.get(), "\n", 1), 1); }

 private:
  static std::vector<std::string> arguments() {
    return {"run",
            "-n",
            "2",
            "--grace",
            "0.2",
            "sh",
            "-c",
            "[ $RANK = 0 ] || exec " UNISONO_PROBE " daemon; echo ready; read x; exit 9"};
  }

  std::array<int, 2> ends_ = [] {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    return ends;
  }();
  Fd read_end_{ends_[0]};
  Fd write_end_{ends_[1]};
  LaunchRun run_;
};

// The grace and three seconds, with a reserve for a busy machine.
constexpr std::chrono::seconds kSoon{15};

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
  EXPECT_EQ(run.marked().size(), 8U);  // Launcher, guardian, and three ranks with a daemon each.
  const pid_t launcher = run.pid();
  ASSERT_EQ(::kill(launcher, SIGKILL), 0);
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
  EXPECT_EQ(run.finish().err,
            "[unisono run] the launcher (pid " + std::to_string(launcher) +
                ") was killed; its ranks are ended\n");
}

TEST(LaunchKilling, AStoppedGuardianWakesWhenTheLauncherIsKilled) {
  LaunchRun run({.arguments = probe({"-n", "2"}, {"wait"})});
  run.wait_for_output("ready", 2);
  ASSERT_EQ(::kill(run.guardian(), SIGSTOP), 0);
  ASSERT_EQ(::kill(run.pid(), SIGKILL), 0);
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

TEST(LaunchKilling, AStoppedGuardianStillTellsOfAFailure) {
  FailingOnDemand job;
  ASSERT_EQ(::kill(job.run().guardian(), SIGSTOP), 0);
  job.fail();
  const RunResult result = job.run().finish();
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, ContainsRegex("rank 0 \\(pid [0-9]+\\) failed .*: exit code 9"));
  EXPECT_THAT(job.run().marked(), IsEmpty());
}

TEST(LaunchKilling, AnInterruptEndsAllThoughTheGuardianDoesNotAnswer) {
  LaunchRun run({.arguments = probe({"-n", "2", "--grace", "0.2"}, {"daemon"})});
  run.wait_for_output("ready", 2);
  const HeldProcess guardian(run.guardian());
  ASSERT_EQ(::kill(run.pid(), SIGINT), 0);
  guardian.expect_killed_within(kSoon);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("the guardian process \\(pid [0-9]+\\) does not answer"),
                    HasSubstr("ended by SIGINT")));
  EXPECT_THAT(run.marked(), IsEmpty());
}

TEST(LaunchKilling, AFailureEndsAllThoughTheGuardianDoesNotAnswer) {
  FailingOnDemand job;
  const HeldProcess guardian(job.run().guardian());
  job.fail();
  guardian.expect_killed_within(kSoon);
  const RunResult result = job.run().finish();
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("the guardian process \\(pid [0-9]+\\) does not answer"),
                    ContainsRegex("rank 0 \\(pid [0-9]+\\) failed after .*: exit code 9"),
                    HasSubstr("ended because of it: rank 1 (killed by SIGKILL)")));
  EXPECT_THAT(job.run().marked(), IsEmpty());
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

TEST(LaunchKilling, TheGuardianHasANameOfItsOwn) {
  LaunchRun run({.arguments = probe({"-n", "1"}, {"wait"})});
  run.wait_for_output("ready");
  const std::string command =
      read_file("/proc/" + std::to_string(run.guardian()) + "/cmdline").c_str();
  EXPECT_EQ(command, "unisono-guard: parent of the ranks of process " + std::to_string(run.pid()));
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  EXPECT_EQ(run.finish().exit_code, 143);
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
