// What a rank that crashes says before it dies.
#include <dlfcn.h>
#include <signal.h>

#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "multiprocess/job.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kSignalBase = 128;

ProcessResult crash(const std::string& how, const Variables& variables = {}) {
  return run_job({.world_size = 1, .mode = {how}, .variables = variables}).front();
}

// Names come from it.
constexpr const char* kNoLibdw = "libdw.so.1 (Debian's libdw1) is not installed";

bool has_libdw() {
  return ::dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr;
}

std::string line_after(const std::string& text, const std::string& part) {
  const std::size_t begin = text.find(part);
  if (begin == std::string::npos) {
    return "";
  }
  const std::size_t line = text.find('\n', begin) + 1;
  return text.substr(line, text.find('\n', line) - line);
}

struct Way {
  std::string how;
  int signal_number;
  std::string headline;
  std::string function;

  friend std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.how; }
};

class Crash : public ::testing::TestWithParam<Way> {};

TEST_P(Crash, IsReportedAndEndsTheRankAsBefore) {
  if (!has_libdw()) {
    GTEST_SKIP() << kNoLibdw;
  }
  const Way& way = GetParam();
  const ProcessResult result = crash(way.how);
  EXPECT_EQ(result.exit_code, kSignalBase + way.signal_number);
  EXPECT_THAT(result.err,
              ContainsRegex("\\[unisono rank 0\\] pid [0-9]+ \\(thread crash_program\\): " +
                            way.headline + "\n"));
  EXPECT_THAT(result.err,
              ContainsRegex("  #[0-9]+ crash_program::" + way.function +
                            " at [^\n]*/crash_program\\.cpp:[0-9]+\n"));
  EXPECT_THAT(result.err, ContainsRegex("  #[0-9]+ main at [^\n]*/crash_program\\.cpp:[0-9]+\n"));
}

INSTANTIATE_TEST_SUITE_P(
    Ways,
    Crash,
    ::testing::Values(
        Way{"null", SIGSEGV, "SIGSEGV \\(address 0x10: not mapped\\)", "null_pointer\\(\\)"},
        Way{"abort",
            SIGABRT,
            "SIGABRT \\(abort\\(\\), as after a failed assertion or an exception that nobody "
            "caught\\)",
            "give_up\\(\\)"},
        Way{"throw", SIGABRT, "SIGABRT \\(abort\\(\\)[^\n]*\\)", "throw_uncaught\\(\\)"},
        Way{"bus",
            SIGBUS,
            "SIGBUS \\(address 0x[0-9a-f]+: beyond the end of its file, or there is no memory for "
            "it\\)",
            "read_beyond_end\\(\\)"},
        Way{"jump", SIGSEGV, "SIGSEGV \\(address 0x0: not mapped\\)", "jump_to_null\\(\\)"},
#if defined(__x86_64__)
        Way{"fpe",
            SIGFPE,
            "SIGFPE \\(instruction at 0x[0-9a-f]+: an integer divided by zero, or the least one "
            "by -1\\)",
            "divide\\(\\)"},
#endif
        Way{"ill",
            SIGILL,
            "SIGILL \\(instruction at 0x[0-9a-f]+: no instruction of this processor\\)",
            "illegal_instruction\\(\\)"}),
    [](const auto& tested) { return tested.param.how; });

TEST(CrashReport, NamesInlinedFunctionsWithTheLinesOfTheirCalls) {
  if (!has_libdw()) {
    GTEST_SKIP() << kNoLibdw;
  }
  const std::string text = crash("null").err;
  EXPECT_THAT(
      line_after(text, "not mapped"),
      ContainsRegex("^  #0 crash_program::read_label\\(crash_program::Sample const volatile\\*\\) "
                    "\\(inlined\\) at [^\n]*/crash_program\\.cpp:[0-9]+$"));
  EXPECT_THAT(
      line_after(text, "#0 crash_program::read_label"),
      ContainsRegex("^  #0 crash_program::use_null\\(crash_program::Sample const volatile\\*\\) at "
                    "[^\n]*/crash_program\\.cpp:[0-9]+$"));
  EXPECT_THAT(text, Not(HasSubstr("build with -g")));
}

TEST(CrashReport, LeavesTheWordsOfAnUncaughtException) {
  EXPECT_THAT(crash("throw").err, HasSubstr("what():  the data set is empty\n"));
}

TEST(CrashReport, OfAStackThatHasOverflowedHasBothEnds) {
  if (!has_libdw()) {
    GTEST_SKIP() << kNoLibdw;
  }
  const ProcessResult result = crash("overflow");
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("SIGSEGV \\(address 0x[0-9a-f]+: [^\n]*; the stack has "
                                  "overflowed\\)\n"),
                    ContainsRegex("  #0 crash_program::recurse\\(int\\) at "),
                    ContainsRegex("  #47 crash_program::recurse\\(int\\) at [^\n]*\n"
                                  "  \\([0-9]+ frames left out\\)\n"
                                  "  #[0-9]+ crash_program::recurse\\(int\\) at "),
                    ContainsRegex("  #[0-9]+ main at ")));
}

// As `unisono run` shows the last 20 lines.
TEST(CrashReport, RepeatsItsFirstLineAfterALongStack) {
  const std::vector<std::string> lines = split_lines(crash("overflow").err);
  ASSERT_GT(lines.size(), 60U);
  EXPECT_THAT(lines.front(), StartsWith("[unisono rank 0] pid "));
  EXPECT_EQ(lines.back(), lines.front());
}

TEST(CrashReport, NamesTheThread) {
  if (!has_libdw()) {
    GTEST_SKIP() << kNoLibdw;
  }
  const ProcessResult result = crash("thread");
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("(thread loader): SIGSEGV (address 0x10: not mapped)\n"),
                    HasSubstr(" crash_program::null_pointer() at ")));
}

TEST(CrashReport, NamesWhoHasSentTheSignal) {
  Job job({.world_size = 1, .mode = {"wait"}});
  job.start_all();
  ASSERT_TRUE(job.processes().wait_for_output(0, "ready"));
  job.processes().send_signal(0, SIGSEGV);
  const ProcessResult result = job.processes().finish().front();
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("SIGSEGV (sent by process " + std::to_string(::getpid()) + ")\n"),
                    HasSubstr("  #0 ")));  // Of whichever thread the kernel has chosen.
}

TEST(CrashReport, LeavesAHandlerThatIsThere) {
  const ProcessResult result = crash("own-handler");
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.err, "own handler\n");
}

TEST(CrashReport, CanBeSwitchedOff) {
  const ProcessResult result = crash("null", {{"UNISONO_CRASH_REPORT", "off"}});
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_EQ(result.err, "");
}

TEST(CrashReport, WithoutLibdwSaysWhatToInstall) {
  const ProcessResult result = crash("null", {{"LIBRARIES", "missing"}});
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("  #0 [^\n]*/crash_program\\(\\+0x[0-9a-f]+\\)\n"),
                    HasSubstr("\n  (to see files and lines, install libdw.so.1, Debian's "
                              "libdw1)\n")));
}

TEST(CrashReport, WhereNamesTakeTooLongHasAddresses) {
  const ProcessResult result = crash("null", {{"LIBRARIES", "hang"}});
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("SIGSEGV (address 0x10: not mapped)\n"),
                    ContainsRegex("  #0 /[^\n]*/crash_program\\(\\+0x[0-9a-f]+\\)\n"),
                    HasSubstr("\n  (looking up names failed; addr2line -Cfie FILE OFFSET does "
                              "it)\n")));
}

TEST(CrashReport, NobodyWhoReadsItCanKeepTheRankAlive) {
  EXPECT_EQ(crash("stopped-reader").exit_code, kSignalBase + SIGSEGV);
  EXPECT_EQ(crash("closed-stderr").exit_code, kSignalBase + SIGSEGV);
}

#if defined(__x86_64__)
TEST(CrashReport, OfAStackThatCannotBeReadHasTheFirstFrame) {
  if (!has_libdw()) {
    GTEST_SKIP() << kNoLibdw;
  }
  const ProcessResult result = crash("lost-stack");
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("  #0 crash_program::lose_stack() at "));
}
#endif

TEST(CrashReport, OfAProgramWithoutDebugInformationSaysHowToGetLines) {
  if (!has_libdw()) {
    GTEST_SKIP() << kNoLibdw;
  }
  Processes processes;
  const ReservedPort port;
  processes.start({UNISONO_BARE_PROGRAM, "null"},
                  {{"RANK", "0"},
                   {"WORLD_SIZE", "1"},
                   {"MASTER_ADDR", "127.0.0.1"},
                   {"MASTER_PORT", port.text()}});
  const ProcessResult result = processes.finish().front();
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("  #0 crash_program::use_null\\([^\n]*\\) in "
                                  "[^\n]*/crash_program_bare\\(\\+0x[0-9a-f]+\\)\n"),
                    ContainsRegex("\n  \\(to see files and lines of [^\n]*/crash_program_bare, "
                                  "build with -g\\)\n")));
}

TEST(CrashReport, ItsFirstLineIsInTheLaunchersReport) {
  if (!has_libdw()) {
    GTEST_SKIP() << kNoLibdw;
  }
  for (const std::string how : {"null", "overflow"}) {
    Processes processes;
    processes.start({UNISONO_PROGRAM, "run", "-n", "2", UNISONO_RANK_PROGRAM, how});
    const ProcessResult result = processes.finish().front();
    EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
    EXPECT_THAT(
        result.err,
        AllOf(ContainsRegex("rank [01] \\(pid [0-9]+\\) failed after [0-9.]+ s: killed by SIGSEGV"),
              ContainsRegex("its last line:\n.*\\| \\[unisono rank [01]\\] pid [0-9]+ "
                            "\\(thread crash_program\\): SIGSEGV")));
  }
}

}  // namespace
}  // namespace unisono::test
