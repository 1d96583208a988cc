// The launcher on a terminal.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/launch/output/pty.h"

#include "launch_run.h"

namespace unisono::launch_test {
namespace {

using ::testing::HasSubstr;

std::string read_until(const Fd& terminal, const std::string& wanted) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  std::string text;
  while (text.find(wanted) == std::string::npos && !deadline.has_passed()) {
    pollfd ready{terminal.get(), POLLIN, 0};
    std::array<char, 4096> buffer{};
    if (::poll(&ready, 1, deadline.poll_timeout_ms()) == 1) {
      const ssize_t n_bytes = ::read(terminal.get(), buffer.data(), buffer.size());
      if (n_bytes <= 0) {
        break;
      }
      text.append(buffer.data(), static_cast<std::size_t>(n_bytes));
    }
  }
  return text;
}

class LaunchTerminal : public ::testing::Test {
 protected:
  LaunchTerminal() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    input_read_ = Fd(ends[0]);
    input_ = Fd(ends[1]);
  }

  launch::Pty terminal_ = launch::open_pty(-1);
  Fd input_read_;
  Fd input_;
};

TEST_F(LaunchTerminal, RankZerosBarIsSeenBeforeItsLineEnds) {
  LaunchRun run({.arguments = probe({"-n", "1"}, {"progress"}),
                 .stdin_fd = input_read_.get(),
                 .stdout_fd = terminal_.slave.get()});
  EXPECT_THAT(read_until(terminal_.master, "50%"), HasSubstr("terminal\n\r 50%"));
  ASSERT_EQ(::write(input_.get(), "x", 1), 1);
  EXPECT_EQ(read_until(terminal_.master, "\n"), "\r100%\n");
  EXPECT_EQ(run.finish().exit_code, 0);
}

TEST_F(LaunchTerminal, OnlyRankZeroHasATerminal) {
  LaunchRun run({.arguments = probe({"-n", "2"}, {"progress"}),
                 .stdin_fd = input_read_.get(),
                 .stdout_fd = terminal_.slave.get()});
  std::string text = read_until(terminal_.master, "50%");
  EXPECT_THAT(text, HasSubstr("\r 50%"));
  ASSERT_EQ(::write(input_.get(), "x", 1), 1);
  text += read_until(terminal_.master, "100%\n");
  EXPECT_EQ(run.finish().exit_code, 0);
  EXPECT_EQ(count("\n" + text, "\nterminal\n"), 1) << text;
}

TEST_F(LaunchTerminal, WithAPrefixThereAreOnlyWholeLines) {
  LaunchRun run({.arguments = probe({"-n", "1", "--prefix"}, {"progress"}),
                 .environment = {"NO_COLOR=1"},
                 .stdin_fd = input_read_.get(),
                 .stdout_fd = terminal_.slave.get()});
  EXPECT_EQ(read_until(terminal_.master, "\n"), "[rank 0] no terminal\n");
  ASSERT_EQ(::write(input_.get(), "x", 1), 1);
  EXPECT_EQ(read_until(terminal_.master, "100%\n"), "[rank 0] \r 50%\r100%\n");
  EXPECT_EQ(run.finish().exit_code, 0);
}

TEST_F(LaunchTerminal, APrefixHasAColour) {
  for (const char* const terminal : {"xterm", "dumb"}) {
    LaunchRun run({.arguments = {"run", "-n", "2", "--prefix", "sh", "-c", "echo text"},
                   .environment = {std::string("TERM=") + terminal, "NO_COLOR"},
                   .stdin_fd = input_read_.get(),
                   .stdout_fd = terminal_.slave.get()});
    std::string text = read_until(terminal_.master, "text\n");
    // Both lines may have come at once.
    text += count(text, "text\n") < 2 ? read_until(terminal_.master, "text\n") : "";
    EXPECT_EQ(run.finish().exit_code, 0);
    const bool has_colour = std::string_view(terminal) == "xterm";
    EXPECT_EQ(count(text, "\x1b[36m[rank 0]\x1b[0m text\n"), has_colour ? 1 : 0) << text;
    EXPECT_EQ(count(text, "\x1b[32m[rank 1]\x1b[0m text\n"), has_colour ? 1 : 0) << text;
    EXPECT_EQ(count("\n" + text, "\n[rank 0] text\n"), has_colour ? 0 : 1) << text;
  }
}

}  // namespace
}  // namespace unisono::launch_test
