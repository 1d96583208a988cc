#include "unisono/launch/report.h"

#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace unisono::launch {
namespace {

constexpr int code(int exit_code) {
  return exit_code << 8;
}

FailureContext wrote(const std::map<std::size_t, std::deque<std::string>>& lines) {
  return {.last_lines = [lines](std::size_t worker) {
    const auto found = lines.find(worker);
    return found == lines.end() ? std::deque<std::string>() : found->second;
  }};
}

TEST(ExitCode, IsThatOfAShell) {
  EXPECT_EQ(exit_code(code(0)), 0);
  EXPECT_EQ(exit_code(code(3)), 3);
  EXPECT_EQ(exit_code(code(255)), 255);
  EXPECT_EQ(exit_code(SIGKILL), 137);
  EXPECT_EQ(exit_code(SIGSEGV | 0x80), 139);  // With a core dump.
}

TEST(FailureReport, SaysWhoHasWaitedForARankThatWasGivenUp) {
  using State = WorkerRecord::State;
  const std::vector<WorkerRecord> workers{
      {.rank = 0, .pid = 10, .state = State::kEnded, .status = SIGTERM, .ended_by_us = true},
      {.rank = 1,
       .pid = 11,
       .state = State::kEnded,
       .status = SIGKILL,
       .lifetime = std::chrono::seconds(60),
       .ended_by_us = true,
       .given_up = "others have waited for it for 30.0 s",
       .waits = "rank 0 in barrier #1\nrank 2 in barrier #1"}};
  FailureContext context = wrote({});
  context.host = "alpha";
  context.kill_note = "it was the launcher's, which is not to be said";
  EXPECT_EQ(
      failure_report(workers, 1, context),
      "rank 1 (alpha, pid 11) was aborted after 60.0 s: others have waited for it for 30.0 s\n"
      "  waiting ranks: rank 0 in barrier #1\n"
      "    rank 2 in barrier #1\n"
      "  it wrote nothing\n"
      "  ended because of it: rank 0 (killed by SIGTERM)");
}

TEST(FailureReport, NamesTheFirstAndWhatBecameOfTheOthers) {
  using State = WorkerRecord::State;
  using std::chrono::milliseconds;
  const std::vector<WorkerRecord> workers{
      {.rank = 4, .pid = 10, .state = State::kEnded, .status = SIGTERM, .ended_by_us = true},
      {.rank = 5,
       .pid = 11,
       .state = State::kEnded,
       .status = code(3),
       .lifetime = milliseconds(1234)},
      {.rank = 6, .pid = 12, .state = State::kEnded, .status = code(1)},
      {.rank = 7, .pid = 13, .state = State::kEnded, .status = SIGTERM, .ended_by_us = true},
      {.rank = 8, .pid = 14, .state = State::kEnded, .status = SIGKILL, .ended_by_us = true},
      {.rank = 9, .pid = 15, .state = State::kEnded, .status = 0},
      {.rank = 10}};
  EXPECT_EQ(failure_report(workers, 1, wrote({{1, {"one", "two"}}})),
            "rank 5 (pid 11) failed after 1.2 s: exit code 3\n"
            "  its last lines:\n"
            "  | one\n"
            "  | two\n"
            "  failed after it: rank 6 (exit code 1)\n"
            "  ended because of it: rank 8 (killed by SIGKILL)\n"
            "  ended because of it: ranks 4, 7 (killed by SIGTERM)");
}

// For example, a rank that saves its state after a termination signal.
TEST(FailureReport, LeavesOutRanksThatEndedWell) {
  using State = WorkerRecord::State;
  const std::vector<WorkerRecord> workers{
      {.rank = 0, .pid = 10, .state = State::kEnded, .status = code(0), .ended_by_us = true},
      {.rank = 1, .pid = 11, .state = State::kEnded, .status = code(3)},
      {.rank = 2, .pid = 12, .state = State::kEnded, .status = SIGTERM, .ended_by_us = true},
      {.rank = 3, .pid = 13, .state = State::kRunning, .ended_by_us = true}};
  EXPECT_EQ(failure_report(workers, 1, wrote({})),
            "rank 1 (pid 11) failed after 0.0 s: exit code 3\n"
            "  it wrote nothing\n"
            "  ended because of it: rank 3 (its end was not seen)\n"
            "  ended because of it: rank 2 (killed by SIGTERM)");
}

TEST(FailureReport, HasTheOneLineOfWhatTheUserHasSeenUnlessTheExceptionHasIt) {
  using State = WorkerRecord::State;
  std::vector<WorkerRecord> workers{
      {.rank = 0, .pid = 10, .state = State::kEnded, .status = code(1)}};
  const FailureContext context = wrote({{0, {"ValueError: no data"}}});
  EXPECT_EQ(failure_report(workers, 0, context),
            "rank 0 (pid 10) failed after 0.0 s: exit code 1\n"
            "  its last line:\n"
            "  | ValueError: no data");
  workers[0].error = "ValueError: no data\n(at the first epoch)";
  EXPECT_EQ(failure_report(workers, 0, context),
            "rank 0 (pid 10) failed after 0.0 s: exit code 1\n"
            "  its exception: ValueError: no data\n"
            "    (at the first epoch)");
}

TEST(FailureReport, ExplainsSigkillAndSilence) {
  const std::vector<WorkerRecord> workers{
      {.rank = 0, .pid = 7, .state = WorkerRecord::State::kEnded, .status = SIGKILL}};
  FailureContext context = wrote({});
  context.kill_note = "memory ran out";
  EXPECT_EQ(failure_report(workers, 0, context),
            "rank 0 (pid 7) failed after 0.0 s: killed by SIGKILL\n"
            "  memory ran out\n"
            "  it wrote nothing");
}

TEST(FailureReport, HasTheExceptionAndTheLinesOfWhoWroteSome) {
  using State = WorkerRecord::State;
  const std::vector<WorkerRecord> workers{
      {.rank = 0, .pid = 7, .state = State::kEnded, .status = SIGTERM, .ended_by_us = true},
      {.rank = 1, .pid = 8, .state = State::kEnded, .status = code(1)},
      {.rank = 2, .pid = 9, .state = State::kEnded, .status = code(1), .error = "E: no\ndata"}};
  FailureContext context = wrote({{0, {"I was well"}}, {1, {"no such file"}}});
  context.kill_note = "memory ran out";
  EXPECT_EQ(failure_report(workers, 2, context),
            "rank 2 (pid 9) failed after 0.0 s: exit code 1\n"
            "  its exception: E: no\n"
            "    data\n"
            "  it wrote nothing; the last line of rank 1, which failed after it:\n"
            "  | no such file\n"
            "  failed after it: rank 1 (exit code 1)\n"
            "  ended because of it: rank 0 (killed by SIGTERM)");
}

TEST(RestartReport, SaysWhoMadeEachNecessary) {
  using State = WorkerRecord::State;
  using std::chrono::milliseconds;
  const WorkerRecord first{.rank = 1,
                           .pid = 11,
                           .state = State::kEnded,
                           .status = code(3),
                           .lifetime = milliseconds(500)};
  const WorkerRecord second{.rank = 0, .pid = 12, .state = State::kEnded, .status = SIGSEGV};
  const std::vector<std::string> failures{describe_failed_rank(first),
                                          describe_failed_rank(second, "alpha")};
  EXPECT_EQ(restart_report(failures, 3),
            "2 of 3 restarts used:\n"
            "  before restart 1, rank 1 (pid 11) failed after 0.5 s: exit code 3\n"
            "  before restart 2, rank 0 (alpha, pid 12) failed after 0.0 s: killed by SIGSEGV");
  const std::string many = restart_report(std::vector(25, failures[0]), 30);
  EXPECT_EQ(std::ranges::count(many, '\n'), 10) << "of many, the last ones";
  EXPECT_NE(many.find("before restart 25,"), std::string::npos);
}

TEST(RankList, JoinsNeighbours) {
  EXPECT_EQ(rank_list(std::vector{3}), "rank 3");
  EXPECT_EQ(rank_list(std::vector{0, 2, 3, 4, 7, 8}), "ranks 0, 2-4, 7-8");
}

}  // namespace

namespace {

std::string message_of(const std::string& text) {
  const ErrorFile file;
  std::ofstream(file.path()) << text;
  return file.message();
}

TEST(ErrorFile, HasWhatRecordWrites) {
  EXPECT_EQ(message_of(R"({"message": {"message": "ValueError: no such data", "extraInfo": )"
                       R"({"py_callstack": "Traceback...", "timestamp": "1700000000"}}})"),
            "ValueError: no such data");
  EXPECT_EQ(message_of(R"({"message": "plain"})"), "plain");
}

TEST(ErrorFile, HasOtherTextAsItIs) {
  EXPECT_EQ(message_of(""), "");
  EXPECT_EQ(message_of("no json"), "no json");
  EXPECT_EQ(message_of(R"({"message": "\udc80"})"), R"({"message": "\udc80"})");
  EXPECT_EQ(message_of(R"({"other": 1})"), R"({"other": 1})");
  const std::string deep(100'000, '[');
  EXPECT_EQ(message_of(deep), deep.substr(0, 64 << 10));
}

TEST(ErrorFile, IsThereForOtherProcesses) {
  const ErrorFile file;
  ASSERT_EQ(std::system(("echo broken >" + file.path()).c_str()), 0);
  EXPECT_EQ(file.message(), "broken\n");
}

}  // namespace

namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MemoryKills, AreCountedInBothVersionsOfControlGroups) {
  const TemporaryFolder root;
  (void)root.write("proc/vmstat", "nr_free_pages 7\noom_kill 5\n");
  (void)root.write("proc/self/cgroup", "4:memory:/job\n0::/\n");
  (void)root.write("sys/fs/cgroup/memory/job/memory.oom_control",
                   "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  const MemoryKills first = count_memory_kills(root.path());
  EXPECT_EQ(first.group, 2U);
  EXPECT_EQ(first.machine, 5U);
  (void)root.write("proc/self/cgroup", "0::/job\n");
  (void)root.write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n");
  EXPECT_EQ(count_memory_kills(root.path()).group, 3U);
}

TEST(MemoryKills, MayBeUnknown) {
  const TemporaryFolder root;
  const MemoryKills none = count_memory_kills(root.path());
  EXPECT_FALSE(none.group.has_value());
  EXPECT_FALSE(none.machine.has_value());
  EXPECT_THAT(describe_kill(none, none), HasSubstr("dmesg"));
}

TEST(MemoryKills, SayWhereASigkillCameFrom) {
  const MemoryKills before{.group = 1, .machine = 5};
  EXPECT_THAT(describe_kill(before, {.group = 2, .machine = 6}), HasSubstr("control group"));
  EXPECT_THAT(describe_kill(before, {.group = 1, .machine = 7}),
              HasSubstr("killed 2 processes meanwhile"));
  EXPECT_THAT(describe_kill(before, before), StartsWith("SIGKILL came from outside; it was not"));
}

TEST(MemoryKills, OfThisMachineCanBeRead) {
  EXPECT_TRUE(count_memory_kills().machine.has_value());
}

}  // namespace
}  // namespace unisono::launch
