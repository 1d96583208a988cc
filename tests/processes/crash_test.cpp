// Crash reports of ranks.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"
#include "support/temporary_folder.h"

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

constexpr const char* kNoAddr2line = "addr2line (Debian's binutils or elfutils) is not installed";

bool has_addr2line() {
  return std::system("command -v addr2line >/dev/null || command -v eu-addr2line >/dev/null") == 0;
}

// Runs a crash with `script` in place of addr2line.
ProcessResult crash_with_addr2line(const std::string& how, const std::string& script) {
  const TemporaryFolder folder;
  (void)folder.write("addr2line", "#!/bin/sh\n" + script + "\n", 0755);
  return crash(how, {{"PATH", folder.path()}});
}

// Environment variables of a job of one rank.
Variables lone_rank(const ReservedPort& port) {
  return {{"RANK", "0"},
          {"WORLD_SIZE", "1"},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", port.text()}};
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
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
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
            "SIGABRT \\(abort\\(\\), as after a failed assertion or an uncaught exception\\)",
            "give_up\\(\\)"},
        Way{"throw", SIGABRT, "SIGABRT \\(abort\\(\\)[^\n]*\\)", "throw_uncaught\\(\\)"},
        Way{"bus",
            SIGBUS,
            "SIGBUS \\(address 0x[0-9a-f]+: beyond the end of its file, or there is no memory for "
            "it\\)",
            "read_beyond_end\\(\\)"},
        Way{"jump", SIGSEGV, "SIGSEGV \\(address 0x0: not mapped\\)", "jump_to_null\\(\\)"},
        Way{"wild", SIGSEGV, "SIGSEGV \\(address 0x1234: not mapped\\)", "jump_to_number\\(\\)"},
#if defined(__x86_64__)
        Way{"fpe",
            SIGFPE,
            "SIGFPE \\(instruction at 0x[0-9a-f]+: an integer divided by zero, or the smallest one "
            "by -1\\)",
            "divide\\(\\)"},
#endif
        Way{"ill",
            SIGILL,
            "SIGILL \\(instruction at 0x[0-9a-f]+: not an instruction of this processor\\)",
            "illegal_instruction\\(\\)"}),
    [](const auto& tested) { return tested.param.how; });

TEST(CrashReport, HasTheAddressOfGeneratedCode) {
  const ProcessResult result = crash("generated");
  EXPECT_EQ(result.exit_code, kSignalBase + SIGILL);
  EXPECT_THAT(result.err, ContainsRegex("  #0 0x[0-9a-f]+, where there is no code\n"));
}

TEST(CrashReport, NamesInlinedFunctionsWithTheLinesOfTheirCalls) {
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
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
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
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

// `unisono run` shows the last 20 lines.
TEST(CrashReport, RepeatsItsFirstLineAfterALongStack) {
  const std::vector<std::string> lines = split_lines(crash("overflow").err);
  ASSERT_GT(lines.size(), 60U);
  EXPECT_THAT(lines.front(), StartsWith("[unisono rank 0] pid "));
  EXPECT_EQ(lines.back(), lines.front());
}

TEST(CrashReport, NamesTheThread) {
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
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
                    HasSubstr("  #0 ")));  // The kernel chooses the thread.
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

constexpr const char* kHint =
    "\n  (addr2line, of binutils or elfutils, has failed, or is not installed: addr2line -Cfie "
    "FILE "
    "OFFSET shows files and lines)\n";

TEST(CrashReport, WithoutAddr2lineHasPlacesInFiles) {
  const ProcessResult result = crash("null", {{"PATH", "/nowhere"}});
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("SIGSEGV (address 0x10: not mapped)\n"),
                    ContainsRegex("  #0 [^\n]*/crash_program\\(\\+0x[0-9a-f]+\\)\n"),
                    HasSubstr(kHint)));
}

TEST(CrashReport, WhereNamesTakeTooLongHasPlacesInFiles) {
  for (const std::string script : {"exec /bin/sleep 100", "exec /usr/bin/yes"}) {
    const ProcessResult result = crash_with_addr2line("null", script);
    EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("SIGSEGV (address 0x10: not mapped)\n"),
                      ContainsRegex("  #1 /[^\n]*/crash_program\\(\\+0x[0-9a-f]+\\)\n"),
                      HasSubstr(kHint)));
  }
}

TEST(CrashReport, ReadsBothFormsOfAddr2line) {
  const std::string text =
      crash_with_addr2line(
          "null",
          "[ \"$4\" ] || exit 1\n"
          "/bin/echo -e '0x1\\nf()\\n/a.cpp:1 (discriminator 2)\\ng()\\n/a.cpp:22:7'\n"
          "/bin/echo -e '0x2\\nh()\\n??:?\\n0x3\\nmain\\n/b.cpp:0'")
          .err;
  EXPECT_THAT(text,
              ContainsRegex("  #0 f\\(\\) \\(inlined\\) at /a.cpp:1\n"
                            "  #0 g\\(\\) at /a.cpp:22:7\n"
                            "  #1 h\\(\\) in /[^\n]*/crash_program\\(\\+0x[0-9a-f]+\\)\n"
                            "  #2 main in /"));
}

TEST(CrashReport, OfAFileThatWasReplacedHasNoLines) {
  const TemporaryFolder folder;
  const std::string program = folder.path() + "/crash_program";
  std::filesystem::copy_file(UNISONO_RANK_PROGRAM, program);
  Processes processes;
  const ReservedPort port;
  processes.start({program, "wait"}, lone_rank(port));
  ASSERT_TRUE(processes.wait_for_output(0, "ready"));
  std::filesystem::remove(program);
  std::filesystem::copy_file(UNISONO_BARE_PROGRAM, program);
  processes.send_signal(0, SIGSEGV);
  const ProcessResult result = processes.finish().front();
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(
      result.err,
      AllOf(ContainsRegex("/crash_program\\(\\+0x[0-9a-f]+\\), a file that was replaced since\n"),
            Not(HasSubstr("crash_program.cpp:"))));
}

TEST(CrashReport, NeedsNoHeap) {
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
  }
  const ProcessResult result = crash("corrupt-heap");
  EXPECT_EQ(result.exit_code, kSignalBase + SIGABRT);
  EXPECT_THAT(result.err, HasSubstr(" crash_program::corrupt_heap() at "));
}

TEST(CrashReport, OfSeveralThreadsIsThatOfTheFirst) {
  const ProcessResult result = crash("all-threads");
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  const std::size_t first = result.err.find("SIGSEGV (");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(result.err.find("SIGSEGV (", first + 1), std::string::npos);
}

TEST(CrashReport, IsOneOfAChildToo) {
  const ProcessResult result = crash("child");
  EXPECT_EQ(result.exit_code, SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("SIGSEGV (address 0x10: not mapped)\n"));
}

TEST(CrashReport, DoesNotWaitForTheDynamicLoader) {
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
  }
  const TemporaryFolder folder;
  const ProcessResult result = crash("beside-loader", {{"FOLDER", folder.path()}});
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr(" crash_program::crash_beside_loader() at "));
}

// The dynamic loader supplies the names of functions if addr2line is missing.
TEST(CrashReport, WithoutAddr2lineEndsWhereTheDynamicLoaderIsLocked) {
  const TemporaryFolder folder;
  const ProcessResult result =
      crash("beside-loader", {{"FOLDER", folder.path()}, {"PATH", "/nowhere"}});
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("SIGSEGV (address 0x10: not mapped)\n"));
}

TEST(CrashReport, OfAProgramWithAnOddPathHasItsLines) {
  const TemporaryFolder folder;
  const std::string program = folder.path() + "/a b 'c\n-e/crash_program";
  std::filesystem::create_directory(std::filesystem::path(program).parent_path());
  std::filesystem::copy_file(UNISONO_RANK_PROGRAM, program);
  Processes processes;
  const ReservedPort port;
  processes.start({program, "null"}, lone_rank(port));
  const ProcessResult result = processes.finish().front();
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  if (has_addr2line()) {
    EXPECT_THAT(result.err,
                ContainsRegex("  #0 crash_program::use_null[^\n]* at [^\n]*.cpp:[0-9]+\n"));
  }
}

TEST(CrashReport, NobodyWhoReadsItCanKeepTheRankAlive) {
  EXPECT_EQ(crash("stopped-reader").exit_code, kSignalBase + SIGSEGV);
  EXPECT_EQ(crash("closed-stderr").exit_code, kSignalBase + SIGSEGV);
}

#if defined(__x86_64__)
TEST(CrashReport, OfAStackThatCannotBeReadHasTheFirstFrame) {
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
  }
  const ProcessResult result = crash("lost-stack");
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err, HasSubstr("  #0 crash_program::lose_stack() at "));
}
#endif

TEST(CrashReport, OfAProgramWithoutDebugInformationSaysHowToGetLines) {
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
  }
  Processes processes;
  const ReservedPort port;
  processes.start({UNISONO_BARE_PROGRAM, "null"}, lone_rank(port));
  const ProcessResult result = processes.finish().front();
  EXPECT_EQ(result.exit_code, kSignalBase + SIGSEGV);
  EXPECT_THAT(result.err,
              AllOf(ContainsRegex("  #0 crash_program::use_null\\([^\n]*\\) in "
                                  "[^\n]*/crash_program_bare\\(\\+0x[0-9a-f]+\\)\n"),
                    ContainsRegex("\n  \\(to see files and lines of [^\n]*/crash_program_bare, "
                                  "build with -g\\)\n")));
}

TEST(CrashReport, ItsFirstLineIsInTheLaunchersReport) {
  if (!has_addr2line()) {
    GTEST_SKIP() << kNoAddr2line;
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
