// The launcher on a terminal.
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <climits>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/launch/output/console.h"

#include "launch_run.h"

namespace unisono::launch_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(LaunchTerminal, WithAPrefixABarIsSeenBeforeItsLineEndsToo) {
  LaunchRun run({.arguments = probe({"-n", "1", "--prefix"}, {"progress"}),
                 .environment = {"NO_COLOR=1"},
                 .stdin_fd = input_read_.get(),
                 .stdout_fd = terminal_.slave.get()});
  EXPECT_EQ(read_until(terminal_.master, "50%"), "[rank 0] no terminal\n[rank 0] \r 50%");
  ASSERT_EQ(::write(input_.get(), "x", 1), 1);
  EXPECT_EQ(read_until(terminal_.master, "100%\n"), "\r100%\n");
  EXPECT_EQ(run.finish().exit_code, 0);
}

TEST_F(LaunchTerminal, APrefixHasAColour) {
  for (const char* const terminal : {"xterm", "dumb"}) {
    LaunchRun run({.arguments = {"run", "-n", "2", "--prefix", "sh", "-c", "echo text"},
                   .environment = {std::string("TERM=") + terminal, "NO_COLOR"},
                   .stdin_fd = input_read_.get(),
                   .stdout_fd = terminal_.slave.get()});
    std::string text = read_until(terminal_.master, "text\n");
    // Both lines may have arrived together.
    text += count(text, "text\n") < 2 ? read_until(terminal_.master, "text\n") : "";
    EXPECT_EQ(run.finish().exit_code, 0);
    const bool has_colour = std::string_view(terminal) == "xterm";
    EXPECT_EQ(count(text, "\x1b[36m[rank 0]\x1b[0m text\n"), has_colour ? 1 : 0) << text;
    EXPECT_EQ(count(text, "\x1b[32m[rank 1]\x1b[0m text\n"), has_colour ? 1 : 0) << text;
    EXPECT_EQ(count("\n" + text, "\n[rank 0] text\n"), has_colour ? 0 : 1) << text;
  }
}

// The launcher on a terminal that turns Ctrl-C into a signal, like a foreground job of a shell.
class LaunchCtrlC : public ::testing::TestWithParam<bool> {
 protected:
  LaunchCtrlC() {
    int master = -1;
    int slave = -1;
    std::array<char, PATH_MAX> name{};
    EXPECT_EQ(::openpty(&master, &slave, name.data(), nullptr, nullptr), 0);
    master_ = Fd(master);
    slave_ = Fd(slave);
    name_ = name.data();
  }

  void press() const { ASSERT_EQ(::write(master_.get(), "\x03", 1), 1); }

  // Returns two ranks here, or on two hosts that are both this machine.
  [[nodiscard]] RunSetup setup(const std::vector<std::string>& probe_arguments) const {
    return {.arguments =
                probe(GetParam() ? std::vector<std::string>{"--hosts", "127.0.0.1:1,localhost:1"}
                                 : std::vector<std::string>{"-n", "2"},
                      probe_arguments),
            .terminal = name_};
  }

 private:
  Fd master_;
  Fd slave_;
  std::string name_;
};

TEST_P(LaunchCtrlC, TheFirstOneLeavesRanksTheirTime) {
  LaunchRun run(setup({"save", "1"}));
  run.wait_for_output("ready", 2);
  press();
  const RunResult result = run.finish();
  EXPECT_EQ(count(result.out, "saved\n"), 2) << result.out << result.err;
  EXPECT_EQ(result.exit_code, 130);
}

TEST_P(LaunchCtrlC, TheSecondOneKillsAndSaysSo) {
  LaunchRun run(setup({"save", "100"}));
  run.wait_for_output("ready", 2);
  press();
  run.wait_for_output("saving", 2);
  press();
  const RunResult result = run.finish();
  EXPECT_EQ(count(result.out, "saved\n"), 0) << result.out;
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err,
              ContainsRegex("SIGKILL for ranks? 0(-1)?, as Ctrl-C came a second time, "
                            "[0-9.]+ s after SIGINT; one Ctrl-C leaves them 30 s "
                            "[(]--grace[)]"));
  EXPECT_THAT(run.wait_until_all_gone(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Places, LaunchCtrlC, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "Hosts" : "Local";
});

}  // namespace
}  // namespace unisono::launch_test
