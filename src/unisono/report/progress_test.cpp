#include "unisono/report/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::report {
namespace {

using std::chrono::milliseconds;
using test::read_file;
using test::TemporaryFolder;
using test::throws_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr milliseconds kEveryStep(0);

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }

  Fd read;
  Fd write;
};

/// A terminal with the type xterm.
struct Terminal {
  explicit Terminal(unsigned short n_columns = 80) {
    int master = -1;
    int slave = -1;
    const winsize size{.ws_row = 24, .ws_col = n_columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::openpty(&master, &slave, nullptr, nullptr, &size), 0);
    read = Fd(master);
    write = Fd(slave);
    EXPECT_EQ(::setenv("TERM", "xterm", 1), 0);
    EXPECT_EQ(::unsetenv("NO_COLOR"), 0);
  }

  Fd read;
  Fd write;
};

// Returns the bytes that can be read now.
std::string read_all(const Fd& fd) {
  std::string text;
  std::array<char, 4096> buffer{};
  pollfd ready{fd.get(), POLLIN, 0};
  while (::poll(&ready, 1, 0) == 1) {
    const ssize_t n_bytes = ::read(fd.get(), buffer.data(), buffer.size());
    if (n_bytes <= 0) {
      break;
    }
    text.append(buffer.data(), static_cast<std::size_t>(n_bytes));
  }
  return text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST(Progress, WritesLinesWhereThereIsNoTerminal) {
  const Pipe pipe;
  {
    Progress progress({.total = 2, .title = "t", .interval = kEveryStep, .fd = pipe.write.get()});
    progress.step({{"loss", 0.5}}, 8);
    progress.record({{"accuracy", 0.25}});
    progress.print("a line");
    progress.step({{"loss", 0.25}}, 8);
    EXPECT_EQ(progress.n_steps(), 2);
  }
  EXPECT_THAT(
      lines_of(read_all(pipe.read)),
      ElementsAre(
          MatchesRegex("t: step 1 of 2 \\(50%\\), .* samples/s, .* left, loss 0.5"),
          "a line",
          MatchesRegex("t: step 2 of 2 \\(100%\\), .* samples/s, loss 0.25, accuracy 0.25"),
          MatchesRegex("t: 2 of 2 steps in 0.0 s, .* samples/s, loss 0.25, accuracy 0.25")));
}

TEST(Progress, WritesALineOnlySoOften) {
  const Pipe pipe;
  Progress progress({.total = 1000, .interval = std::chrono::hours(1), .fd = pipe.write.get()});
  for (int i = 0; i < 1000; ++i) {
    progress.step();
  }
  EXPECT_EQ(read_all(pipe.read), "");
  progress.finish();
  progress.step();
  progress.finish();
  EXPECT_THAT(read_all(pipe.read), StartsWith("1000 of 1000 steps in "));
}

TEST(Progress, DrawsABarOnATerminal) {
  const Terminal terminal;
  Progress progress({.total = 4, .fd = terminal.write.get()});
  progress.step({{"loss", 0.5}});
  EXPECT_THAT(read_all(terminal.read), StartsWith("\r\033[K\033[32m"));
  progress.print("a line");
  EXPECT_EQ(read_all(terminal.read), "\r\033[Ka line\r\n");
  progress.clear();
  EXPECT_EQ(read_all(terminal.read), "");
  progress.finish();
  EXPECT_THAT(read_all(terminal.read), StartsWith("\r\033[K1 of 4 steps in "));
}

TEST(Progress, ClearTakesTheBarAway) {
  const Terminal terminal;
  Progress progress({.total = 4, .fd = terminal.write.get()});
  progress.step();
  (void)read_all(terminal.read);
  progress.clear();
  EXPECT_EQ(read_all(terminal.read), "\r\033[K");
}

TEST(Progress, DrawsTheBarTenTimesASecond) {
  const Terminal terminal;
  const auto start = std::chrono::steady_clock::now();
  Progress progress({.total = 100000, .fd = terminal.write.get()});
  for (int i = 0; i < 1000; ++i) {
    progress.step();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::string text = read_all(terminal.read);
  const auto n_bars = static_cast<double>(std::ranges::count(text, '\r'));
  EXPECT_GE(n_bars, 1);
  EXPECT_LE(n_bars, 1 + elapsed.count() / 0.1);
}

TEST(Progress, ABarFitsTheTerminal) {
  const Terminal terminal(30);
  Progress progress({.total = 4, .title = std::string(100, 't'), .fd = terminal.write.get()});
  progress.step();
  EXPECT_EQ(read_all(terminal.read), "\r\033[K" + std::string(29, 't'));
}

TEST(Progress, OneReporterOfATerminalHasTheBar) {
  const Terminal terminal;
  const ProgressOptions options{.total = 4, .interval = kEveryStep, .fd = terminal.write.get()};
  Progress of_lines({.format = ProgressFormat::kLines, .fd = terminal.write.get()});
  auto first = std::make_unique<Progress>(options);
  Progress second(options);
  first->step();
  EXPECT_THAT(read_all(terminal.read), HasSubstr("25% 1/4"));
  second.step();
  EXPECT_THAT(read_all(terminal.read), StartsWith("\r\033[Kstep 1 of 4 (25%)"));
  first.reset();
  Progress third(options);
  (void)read_all(terminal.read);
  third.step();
  EXPECT_THAT(read_all(terminal.read), HasSubstr("25% 1/4"));
}

TEST(Progress, ATerminalThatCanNotRedrawHasLines) {
  const Terminal terminal;
  EXPECT_EQ(::setenv("TERM", "dumb", 1), 0);
  Progress progress({.total = 4, .interval = kEveryStep, .fd = terminal.write.get()});
  progress.step();
  EXPECT_THAT(read_all(terminal.read), StartsWith("step 1 of 4"));
}

TEST(Progress, NoColorIsHeeded) {
  const Terminal terminal;
  EXPECT_EQ(::setenv("NO_COLOR", "1", 1), 0);
  Progress progress({.total = 2, .fd = terminal.write.get()});
  progress.step();
  EXPECT_EQ(::unsetenv("NO_COLOR"), 0);
  EXPECT_THAT(read_all(terminal.read), Not(HasSubstr("\033[32m")));
}

TEST(Progress, OnlyRank0ReportsUnlessAllAreAsked) {
  const TemporaryFolder folder;
  for (const bool all_ranks : {false, true}) {
    const Pipe pipe;
    const std::string file = folder.path() + (all_ranks ? "/all" : "/first");
    test::run_ranks(test::one_node(3), [&](ProcessGroup& group) {
      Progress progress(group,
                        {.interval = kEveryStep,
                         .fd = pipe.write.get(),
                         .json_file = file,
                         .tensorboard = file + ".tb",
                         .all_ranks = all_ranks});
      progress.step({{"loss", 1}});
      EXPECT_EQ(progress.n_steps(), 1);
    });
    const std::string text = read_all(pipe.read);
    EXPECT_THAT(lines_of(text), SizeIs(all_ranks ? 6 : 2)) << text;
    EXPECT_EQ(text.find("rank 2: step 1") != std::string::npos, all_ranks) << text;
    EXPECT_THAT(lines_of(read_file(file)), SizeIs(all_ranks ? 3 : 1));
    EXPECT_EQ(std::filesystem::exists(file + ".tb/rank2"), all_ranks);
  }
}

TEST(Progress, JsonLinesHaveEachRecordedStep) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/steps.json";
  {
    Progress progress({.total = 9,
                       .start = 3,
                       .format = ProgressFormat::kNone,
                       .json_file = file,
                       .record_every = 2});
    for (int i = 0; i < 6; ++i) {
      progress.step({{"loss", i == 3 ? NAN : 0.5 * i}}, 4);
    }
  }
  std::vector<std::string> losses;
  for (const std::string& line : lines_of(read_file(file))) {
    const auto object = nlohmann::json::parse(line);
    losses.push_back(object["step"].dump() + " " + object["values"]["loss"].dump());
  }
  EXPECT_THAT(losses, ElementsAre("4 0.0", "6 1.0", "8 2.0"));
}

TEST(Progress, JsonTakesThePlaceOfLines) {
  const Pipe pipe;
  {
    Progress progress(
        {.format = ProgressFormat::kJson, .interval = kEveryStep, .fd = pipe.write.get()});
    progress.step({{"loss", INFINITY}});
  }
  const std::vector<std::string> lines = lines_of(read_all(pipe.read));
  ASSERT_THAT(lines, SizeIs(2));
  for (const std::string& line : lines) {
    EXPECT_EQ(nlohmann::json::parse(line)["values"]["loss"], "Infinity");
  }
}

TEST(Progress, ALineThatAKilledProcessLeftIsEnded) {
  const TemporaryFolder folder;
  const std::string file = folder.write("steps.json", "{\"step\": 1}\n{\"st");
  Progress({.format = ProgressFormat::kNone, .json_file = file}).step();
  const std::vector<std::string> lines = lines_of(read_file(file));
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[1], "{\"st");
  EXPECT_EQ(nlohmann::json::parse(lines[2])["step"], 1);
}

TEST(Progress, TheFirstValueThatIsNotFiniteIsAWarning) {
  const Pipe pipe;
  ::testing::internal::CaptureStderr();
  {
    Progress progress({.interval = kEveryStep, .fd = pipe.write.get()});
    progress.step({{"loss", 1}, {"norm", INFINITY}});
    progress.step({{"loss", NAN}, {"norm", INFINITY}});
    progress.step({{"loss", NAN}});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono rank 0] warning: norm is infinite at step 1\n"
            "[unisono rank 0] warning: loss is NaN at step 2\n");
  EXPECT_THAT(read_all(pipe.read), HasSubstr("loss nan, norm inf"));
}

TEST(Progress, AFullDiskIsAWarningAndTheTrainingGoesOn) {
  ::testing::internal::CaptureStderr();
  {
    Progress progress({.format = ProgressFormat::kNone, .json_file = "/dev/full"});
    progress.step({{"loss", 1}});
    progress.step({{"loss", 2}});
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono rank 0] warning: can't write to /dev/full: No space left on device (errno "
            "28); the training goes on, and what can't be written is left out\n");
}

// SIGPIPE has its default effect here, which is to end the process.
TEST(Progress, AReaderThatIsGoneEndsNothing) {
  Pipe pipe;
  pipe.read.reset();
  ::testing::internal::CaptureStderr();
  {
    Progress progress({.interval = kEveryStep, .fd = pipe.write.get()});
    progress.step();
    progress.step();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono rank 0] warning: can't write to stdout: Broken pipe (errno 32); the training "
            "goes on, and its progress is not shown any more\n");
}

TEST(Progress, AClosedOutputIsNoneOfAnotherFile) {
  Pipe pipe;
  const TemporaryFolder folder;
  const int number = pipe.write.get();
  Progress progress({.interval = kEveryStep, .fd = number});
  pipe.write.reset();
  // The next file that the program opens gets the same descriptor.
  const Fd other(::open((folder.path() + "/other").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(other.get(), number);
  progress.step();
  EXPECT_EQ(read_file(folder.path() + "/other"), "");
  EXPECT_THAT(read_all(pipe.read), StartsWith("step 1"));
  Progress({.interval = kEveryStep, .fd = 1000000}).step();
}

TEST(Progress, AReaderThatTakesNothingIsNotWaitedForLong) {
  const Pipe pipe;
  constexpr int kPageBytes = 4096;
  ASSERT_EQ(::fcntl(pipe.write.get(), F_SETPIPE_SZ, kPageBytes), kPageBytes);
  ASSERT_EQ(::write(pipe.write.get(), std::string(kPageBytes, 'x').data(), kPageBytes), kPageBytes);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  {
    Progress progress({.interval = kEveryStep, .fd = pipe.write.get()});
    for (int i = 0; i < 1000; ++i) {
      progress.step();
    }
    EXPECT_FALSE(deadline.has_passed());
    EXPECT_EQ(read_all(pipe.read), std::string(kPageBytes, 'x'));
    progress.step();
    EXPECT_THAT(read_all(pipe.read), StartsWith("step 1001"));
  }
}

TEST(Progress, NoTerminalIsWaitedFor) {
  const Terminal terminal;
  ASSERT_EQ(::tcflow(terminal.write.get(), TCOOFF), 0);
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  {
    Progress progress({.total = 10, .fd = terminal.write.get()});
    progress.step();
    progress.print("a line");
    progress.print("another");
  }
  EXPECT_FALSE(deadline.has_passed());
}

TEST(Progress, OptionsThatMakeNoSenseAreRefused) {
  const auto make = [](const ProgressOptions& options) { return [options] { Progress{options}; }; };
  constexpr ErrorCode kInvalid = ErrorCode::kInvalidArgument;
  EXPECT_THAT(make({.total = -1}), throws_error(kInvalid, "total is -1"));
  EXPECT_THAT(make({.start = -2}), throws_error(kInvalid, "start -2"));
  EXPECT_THAT(make({.interval = milliseconds(-1)}), throws_error(kInvalid, "interval is -1 ms"));
  EXPECT_THAT(make({.record_every = 0}), throws_error(kInvalid, "record_every is 0"));
  EXPECT_THAT(make({.json_file = "/nowhere/at/all"}),
              throws_error(ErrorCode::kSystem, "/nowhere/at/all", "create the folder"));
  EXPECT_THAT(make({.tensorboard = "/dev/null/runs"}),
              throws_error(ErrorCode::kSystem, "can't create the folder /dev/null/runs"));
  Progress progress({.format = ProgressFormat::kNone});
  EXPECT_THAT([&] { progress.step({}, -1); }, throws_error(kInvalid, "-1 samples"));
}

}  // namespace
}  // namespace unisono::report
