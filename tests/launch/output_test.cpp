// Handling of the ranks' output.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::read_file;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LaunchLines : public ::testing::TestWithParam<bool> {};

TEST_P(LaunchLines, StayWholeAndInOrder) {
  constexpr int kRanks = 4;
  constexpr int kLines = 1000;
  const bool prefix = GetParam();
  std::vector<std::string> options{"-n", std::to_string(kRanks)};
  if (prefix) {
    options.emplace_back("--prefix-output");
  }
  const RunResult result =
      run_to_end({.arguments = probe(options, {"lines", std::to_string(kLines)})});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = split_lines(result.out);
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(kRanks * kLines));
  std::array<int, kRanks> next{};
  for (const std::string& line : lines) {
    const std::size_t at = line.find("rank ", prefix ? 2 : 0) + 5;
    const auto rank = static_cast<std::size_t>(line.at(at) - '0');
    ASSERT_LT(rank, next.size()) << line;
    const std::string r = std::to_string(rank);
    ASSERT_EQ(line,
              (prefix ? "[rank " + r + "] " : "") + "rank " + r + " line " +
                  std::to_string(next.at(rank)++) + " end");
  }
}

INSTANTIATE_TEST_SUITE_P(Prefix, LaunchLines, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "Prefixed" : "Plain";
});

TEST(LaunchOutput, SixtyFourRanks) {
  const RunResult result = run_to_end({.arguments = probe({"-n", "64"}, {"lines", "20"})});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(split_lines(result.out).size(), 64U * 20U);
  for (int rank = 0; rank < 64; ++rank) {
    EXPECT_EQ(count(result.out, "rank " + std::to_string(rank) + " line 19 end\n"), 1);
  }
}

TEST(LaunchOutput, AHugeLineIsCutWhereOthersCouldWait) {
  const RunResult result = run_to_end({.arguments = probe({"-n", "2"}, {"long-line", "150000"})});
  std::vector<std::size_t> parts;
  for (const std::string& line : split_lines(result.out)) {
    if (line != "short") {
      parts.push_back(static_cast<std::size_t>(std::ranges::count(line, 'x')));
      EXPECT_EQ(line.ends_with(" [unisono: line cut here]"), parts.size() < 3);
    }
  }
  EXPECT_THAT(parts, ElementsAre(65536, 65536, 150000 - 2 * 65536));
  EXPECT_EQ(count(result.out, "short\n"), 2);
}

TEST(LaunchOutput, OneRanksBytesPassUnchanged) {
  const RunResult result =
      run_to_end({.arguments = {"run", "sh", "-c", "printf 'a\\000b\\r\\377'; printf e >&2"}});
  EXPECT_EQ(result.out, std::string("a\0b\r\xff", 5));
  EXPECT_EQ(result.err, "e");
}

TEST(LaunchOutput, AnUnfinishedLastLineIsNotLost) {
  const RunResult result = run_to_end({.arguments = {"run", "-n", "2", "sh", "-c", "printf end"}});
  EXPECT_EQ(result.out, "end\nend\n");
}

TEST(LaunchOutput, StdoutAndStderrStayApart) {
  const RunResult result =
      run_to_end({.arguments = {"run", "-n", "2", "--prefix", "sh", "-c", "echo o; echo e >&2"}});
  std::vector<std::string> out = split_lines(result.out);
  std::vector<std::string> err = split_lines(result.err);
  std::ranges::sort(out);
  std::ranges::sort(err);
  EXPECT_THAT(out, ElementsAre("[rank 0] o", "[rank 1] o"));
  EXPECT_THAT(err, ElementsAre("[rank 0] e", "[rank 1] e"));
}

TEST(LaunchOutput, ARankMayCloseItsStdout) {
  const RunResult result = run_to_end({.arguments = probe({"-n", "2"}, {"close-stdout"})});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "before\nbefore\n");
  EXPECT_EQ(result.err, "still here\nstill here\n");
}

TEST(LaunchOutput, LogFilesHoldEachRanksBytes) {
  const TemporaryFolder folder;
  const std::string logs = folder.path() + "/new/logs";
  const RunResult result = run_to_end({.arguments = {"run",
                                                     "-n",
                                                     "2",
                                                     "--prefix",
                                                     "--log-dir",
                                                     logs,
                                                     "sh",
                                                     "-c",
                                                     "printf \"out $RANK\"; echo err $RANK >&2"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(read_file(logs + "/rank-" + rank + ".out"), "out " + rank);
    EXPECT_EQ(read_file(logs + "/rank-" + rank + ".err"), "err " + rank + "\n");
    EXPECT_THAT(result.out, HasSubstr("[rank " + rank + "] out " + rank + "\n"));
  }
}

TEST(LaunchOutput, EachRankHasAFolderOfItsOwn) {
  const TemporaryFolder folder;
  const RunResult result =
      run_to_end({.arguments = {"run",
                                "-n",
                                "2",
                                "--max-restarts",
                                "1",
                                "--rank-dir",
                                folder.path() + "/new/./runs",
                                "sh",
                                "-c",
                                "cd \"$UNISONO_RANK_DIR\" && echo $RANK >> file; "
                                "until [ -e ../rank-0/file ] && [ -e ../rank-1/file ]; do "
                                "sleep 0.01; done; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const std::string rank : {"0", "1"}) {
    EXPECT_EQ(read_file(folder.path() + "/new/runs/rank-" + rank + "/file"),
              rank + "\n" + rank + "\n")
        << "one for both attempts";
  }
}

TEST(LaunchOutput, AFolderOfARankThatCantBeMadeIsExplained) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "", 0644);
  const RunResult result = run_to_end({.arguments = probe({"--rank_dir", file}, {"args"})});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("cannot create the folder " + file + "/rank-0 of rank 0"),
                    HasSubstr("--rank-dir")));
}

TEST(LaunchOutput, RedirectsAndTeesGoWhereTheySay) {
  const TemporaryFolder folder;
  const std::string script = "echo out $RANK; echo err $RANK >&2";
  const auto run_with = [&](std::vector<std::string> options) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--log-dir", folder.path(), "-n", "2", "sh", "-c", script});
    return run_to_end({.arguments = options});
  };
  const auto file = [&](const char* name) { return read_file(folder.path() + "/" + name); };

  const RunResult redirected = run_with({"--redirects=0:3,1:1"});
  EXPECT_EQ(redirected.exit_code, 0);
  EXPECT_EQ(redirected.out, "");
  EXPECT_EQ(redirected.err, "err 1\n");
  EXPECT_EQ(file("rank-0.out"), "out 0\n");
  EXPECT_EQ(file("rank-0.err"), "err 0\n");
  EXPECT_EQ(file("rank-1.out"), "out 1\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/rank-1.err"));

  const RunResult teed = run_with({"-t", "3", "--local_ranks_filter=1"});
  EXPECT_EQ(teed.out, "out 1\n");
  EXPECT_EQ(teed.err, "err 1\n");
  EXPECT_EQ(file("rank-0.out"), "out 0\n");
  EXPECT_EQ(file("rank-1.err"), "err 1\n");
}

TEST(LaunchOutput, WhatIsRedirectedIsStillInTheReport) {
  const TemporaryFolder folder;
  const RunResult result = run_to_end(
      {.arguments = {
           "run", "-r", "3", "--log-dir", folder.path(), "sh", "-c", "echo why; exit 3"}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("| why\n"));
}

TEST(LaunchOutput, WithoutAFolderOneIsMadeAndNamed) {
  const TemporaryFolder folder;
  const RunResult result = run_to_end({.arguments = probe({"-r", "1"}, {"lines", "1"}),
                                       .environment = {"TMPDIR=" + folder.path()}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("the ranks' output is in " + folder.path() + "/unisono-"));
  EXPECT_EQ(read_file(std::filesystem::directory_iterator(folder.path())->path() / "rank-0.out"),
            "rank 0 line 0 end\n");
}

TEST(LaunchOutput, AWrongChoiceOfStreamsIsExplained) {
  EXPECT_THAT(
      run_to_end({.arguments = probe({"-r", "0:4"}, {"args"})}).err,
      HasSubstr("run: --redirects 0:4: \"4\" is not a choice of streams: there are 0 to 3"));
  EXPECT_THAT(
      run_to_end({.arguments = probe({"--local-ranks-filter=7"}, {"args"})}).err,
      HasSubstr("run: --local-ranks-filter 7: \"7\" is not a local rank: there are 0 to 0"));
}

TEST(LaunchOutput, ALogFolderThatCantBeMadeIsExplained) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "", 0644);
  const RunResult result = run_to_end({.arguments = probe({"--log-dir", file + "/x"}, {"args"})});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, AllOf(HasSubstr("log files"), HasSubstr(file + "/x")));
}

TEST(LaunchOutput, AFullDiskEndsTheJob) {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  const RunResult result =
      run_to_end({.arguments = probe({"-n", "2"}, {"flood"}), .stdout_fd = full.get()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write to stdout: No space left on device (errno 28)"));
  EXPECT_EQ(split_lines(result.err).size(), 1U) << result.err;
}

TEST(LaunchOutput, AReaderThatGoesAwayEndsTheJob) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  Fd reader(ends[0]);
  Fd writer(ends[1]);
  LaunchRun run({.arguments = probe({"-n", "2"}, {"flood"}), .stdout_fd = writer.get()});
  writer.reset();
  char byte = 0;
  ASSERT_EQ(::read(reader.get(), &byte, 1), 1);
  reader.reset();
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write to stdout: Broken pipe"));
  EXPECT_TRUE(run.marked().empty());
}

TEST(LaunchOutput, AClosedStdoutIsAnErrorOnceItIsNeeded) {
  const RunResult silent =
      run_to_end({.arguments = {"run", "-n", "2", "true"}, .close_stdout = true});
  EXPECT_EQ(silent.exit_code, 0) << silent.err;
  const RunResult result =
      run_to_end({.arguments = probe({"-n", "2"}, {"lines", "3"}), .close_stdout = true});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write to stdout: Bad file descriptor"));
}

// The pipe remains full, but the launcher still handles the signal.
TEST(LaunchOutput, AReaderThatNeverReadsDoesNotDeafenTheLauncher) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  LaunchRun run(
      {.arguments = probe({"-n", "2", "--grace", "0.1"}, {"flood"}), .stdout_fd = writer.get()});
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  pollfd room{writer.get(), POLLOUT, 0};
  while (::poll(&room, 1, 0) == 1) {
    ASSERT_FALSE(deadline.has_passed()) << "the pipe does not get full";
    std::this_thread::yield();
  }
  ASSERT_EQ(::kill(run.pid(), SIGTERM), 0);
  EXPECT_EQ(run.finish().exit_code, 143);
  EXPECT_TRUE(run.marked().empty());
}

struct Unfinished {
  const char* name;
  std::vector<std::string> options;
  std::string shown;     // Output while the line is incomplete.
  std::string complete;  // Output after the end of the line.

  friend std::ostream& operator<<(std::ostream& out, const Unfinished& tested) {
    return out << tested.name;
  }
};

class LaunchUnfinishedLine : public ::testing::TestWithParam<Unfinished> {};

TEST_P(LaunchUnfinishedLine, IsSeenWithinASecondAndAHalf) {
  const Unfinished& tested = GetParam();
  const TemporaryFolder folder;
  std::vector<std::string> arguments{"run"};
  arguments.insert(arguments.end(), tested.options.begin(), tested.options.end());
  arguments.insert(arguments.end(),
                   {"sh",
                    "-c",
                    "[ $RANK = 0 ] || exit 0; echo begins; printf 'epoch 1:'; while ! test -e " +
                        folder.path() + "/end; do sleep 0.02; done; echo ' done'"});
  LaunchRun run({.arguments = arguments});
  run.wait_for_output("begins");
  const Deadline deadline = Deadline::after(std::chrono::milliseconds(1500));
  run.wait_for_output(tested.shown);
  EXPECT_FALSE(deadline.has_passed());
  (void)folder.write("end", "", 0644);
  const RunResult result = run.finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr(tested.complete));
}

INSTANTIATE_TEST_SUITE_P(
    Styles,
    LaunchUnfinishedLine,
    ::testing::Values(
        Unfinished{"Plain", {"-n", "2"}, "epoch 1:", "begins\nepoch 1: done\n"},
        Unfinished{"Prefix", {"-n", "2", "--prefix"}, "epoch 1:", "\n[rank 0] epoch 1: done\n"},
        Unfinished{"Json",
                   {"-n", "2", "--log-format=json"},
                   R"("text":"epoch 1:"})",
                   R"("text":" done"})"},
        Unfinished{"Collapsed", {"-n", "2", "--collapse"}, "[0] epoch 1:\n", "[0]  done\n"},
        Unfinished{"Hosts",
                   {"--hosts", "127.0.0.1:1,localhost:1"},
                   "[127.0.0.1:0] epoch 1:\n",
                   "[127.0.0.1:0]  done\n"}),
    [](const auto& tested) { return tested.param.name; });

// stdout and stderr go to one pipe, as with `2>&1 | tee log`.
TEST(LaunchOutput, ABarLeavesTheLinesOfOthersWhole) {
  const std::string script =
      "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do case $RANK in "
      "0) printf \"\\r$i%%\" >&2;; *) echo line $i;; esac; sleep 0.01; done";
  const RunResult result = run_to_end(
      {.arguments = {"-c", "exec " UNISONO_PROGRAM " run -n 3 sh -c '" + script + "' 2>&1"},
       .program = "/bin/sh"});
  EXPECT_EQ(result.exit_code, 0);
  const std::string& text = result.out;
  int n_whole = 0;
  for (const std::string& line : split_lines(text)) {
    n_whole += line.starts_with("line ") && line.find('\r') == std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(n_whole, 40) << text;
  EXPECT_EQ(count(text, "line "), 40) << text;
  EXPECT_THAT(text, HasSubstr("20%"));
}

TEST(LaunchOutput, EqualLinesAreOneWhereWanted) {
  const RunResult result = run_to_end(
      {.arguments = {"run", "-n", "4", "--collapse", "sh", "-c", "echo all; echo $((RANK / 2))"}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(split_lines(result.out),
              ::testing::UnorderedElementsAre("[0-3] all", "[0-1] 0", "[2-3] 1"));
  EXPECT_EQ(split_lines(result.out).front(), "[0-3] all");
}

TEST(LaunchOutput, LinesAreObjectsWhereWanted) {
  const RunResult result = run_to_end(
      {.arguments = {"run", "-n", "1", "--log-format=json", "sh", "-c", "echo '\"'; exit 3"}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out,
              ::testing::MatchesRegex(
                  R"([{]"time":"[0-9TZ:.-]+","rank":0,"stream":"stdout","text":"\\""[}])"
                  "\n"));
  for (const std::string& line : split_lines(result.err)) {
    EXPECT_THAT(line, ::testing::StartsWith("{\"time\":\""));
  }
  EXPECT_THAT(result.err, HasSubstr("exit code 3"));
  const RunResult refused = run_to_end({.arguments = {"run", "--log-format=xml", "true"}});
  EXPECT_EQ(refused.exit_code, 2);
}

}  // namespace
}  // namespace unisono::launch_test
