#include "unisono/launch/output/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/io.h"

namespace unisono::launch {
namespace {

using ::testing::ElementsAre;

// A terminal or a pipe, and the text that was written there.
class Target {
 public:
  explicit Target(bool is_terminal) {
    if (is_terminal) {
      Pty pty = open_pty(-1);
      read_end_ = std::move(pty.master);
      write_end_ = std::move(pty.slave);
    } else {
      std::array<int, 2> ends{};
      EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
      read_end_ = Fd(ends[0]);
      write_end_ = Fd(ends[1]);
    }
    ::fcntl(read_end_.get(), F_SETFL, O_NONBLOCK);
  }

  [[nodiscard]] int fd() const { return write_end_.get(); }

  // Returns the written text after `n_bytes` bytes have arrived, because a terminal forwards bytes
  // with a delay.
  std::string text(std::size_t n_bytes) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(5));
    std::array<char, 4096> buffer{};
    std::string text;
    do {
      const ssize_t n_read = ::read(read_end_.get(), buffer.data(), buffer.size());
      text.append(buffer.data(), static_cast<std::size_t>(std::max<ssize_t>(n_read, 0)));
    } while (text.size() < n_bytes && net::wait_for(read_end_.get(), POLLIN, deadline));
    return text;
  }

 private:
  Fd read_end_;
  Fd write_end_;
};

class ConsoleTest : public ::testing::TestWithParam<bool> {
 protected:
  void expect_text(const std::string& expected) {
    out_.flush();
    err_.flush();
    EXPECT_EQ(target_.text(expected.size()), expected);
  }

  static constexpr Source kBar{0, OutputStream::kOut};
  static constexpr Source kOther{1, OutputStream::kErr};

  net::EventLoop loop_;
  Target target_{GetParam()};
  FdSink out_{target_.fd(), loop_, [](int) { FAIL(); }};
  // A second descriptor of the same terminal or file.
  Fd second_{::fcntl(target_.fd(), F_DUPFD_CLOEXEC, 0)};
  FdSink err_{second_.get(), loop_, [](int) { FAIL(); }};
  Console console_{out_, err_};
};

TEST_P(ConsoleTest, LinesGetTheirPrefixAndTheMarkOfACut) {
  console_.put_line(kBar, "[rank 0] ", {"one", 0, false});
  console_.put_line(kBar, "[rank 0] ", {"two", 4, true});
  expect_text("[rank 0] one\n[rank 0] two [unisono: line cut here]\n");
}

TEST_P(ConsoleTest, AnUnfinishedLineIsCompletedWithoutRepeating) {
  console_.put_partial(kBar, "[rank 0] ", {"50", 10});
  expect_text("[rank 0] 50");
  console_.put_partial(kBar, "[rank 0] ", {"50%", 10});
  expect_text("%");
  console_.put_line(kBar, "[rank 0] ", {"50% done", 10});
  expect_text(" done\n");
}

TEST_P(ConsoleTest, AfterForgottenFramesOnlyWhatIsNewIsShown) {
  console_.put_partial(kBar, "", {"\r10%\r20%", 0});
  expect_text("\r10%\r20%");
  console_.put_partial(kBar, "", {"\r20%\r30%", 4});
  expect_text("\r30%");
}

TEST_P(ConsoleTest, AMessageStartsItsOwnLineWhereAnotherIsShown) {
  console_.put_raw(kBar, "prompt> ");
  console_.put_message("stop\n");
  expect_text("prompt> \nstop\n");
}

TEST_P(ConsoleTest, AnInterruptedLineIsShownAgain) {
  console_.put_partial(kBar, "0: ", {"a\r10%\r20%", 0});
  console_.put_line(kOther, "1: ", {"hello", 0});
  expect_text("0: a\r10%\r20%\n1: hello\n");
  console_.put_partial(kBar, "0: ", {"a\r10%\r20%\r30%", 0});
  expect_text("0: \r30%");
  console_.put_line(kOther, "1: ", {"again", 6});
  console_.put_line(kBar, "0: ", {"a\r10%\r20%\r30%\rdone", 0});
  expect_text("\n1: again\n0: \rdone\n");
  console_.put_line(kBar, "0: ", {"b\rnext", 23});
  expect_text("0: b\rnext\n");
}

TEST(ConsoleRows, StdoutAndStderrHaveOneEachWhereTheyEndApart) {
  net::EventLoop loop;
  Target out_target(false);
  Target err_target(false);
  FdSink out(out_target.fd(), loop, [](int) { FAIL(); });
  FdSink err(err_target.fd(), loop, [](int) { FAIL(); });
  Console console(out, err);
  const Source bar{0, OutputStream::kOut};
  const Source other{1, OutputStream::kErr};
  console.put_partial(bar, "", {"10%", 0});
  EXPECT_TRUE(console.has_row_for(other));
  console.put_partial(other, "", {"fetching", 0});
  EXPECT_TRUE(console.has_row_for(bar));
  EXPECT_FALSE(console.has_row_for({1, OutputStream::kOut}));
  console.put_line({1, OutputStream::kOut}, "", {"hello", 0});
  console.put_message("stop\n");
  out.flush();
  err.flush();
  EXPECT_EQ(out_target.text(10), "10%\nhello\n");
  EXPECT_EQ(err_target.text(14), "fetching\nstop\n");
}

INSTANTIATE_TEST_SUITE_P(Targets, ConsoleTest, ::testing::Bool(), [](const auto& tested) {
  return tested.param ? "Terminal" : "Pipe";
});

TEST(TailTest, KeepsTheLastLinesAsTheyWereSeen) {
  Tail tail;
  for (int i = 0; i < 30; ++i) {
    tail.add("line " + std::to_string(i));
  }
  tail.add("\r10%\r20%\r");
  EXPECT_EQ(tail.lines().size(), 20U);
  EXPECT_EQ(tail.lines().front(), "line 11");
  EXPECT_EQ(tail.lines().back(), "20%");
}

TEST(TailTest, TheHeadlineIsTheLineThatSaysMost) {
  const auto headline = [](const std::vector<std::string>& lines) {
    Tail tail;
    for (const std::string& line : lines) {
      tail.add(line);
    }
    return tail.headline();
  };
  EXPECT_THAT(headline({}), ElementsAre());
  EXPECT_THAT(headline({"epoch 3"}), ElementsAre("epoch 3"));
  EXPECT_THAT(headline({"Traceback:", "  File \"a.py\"", "ValueError: no data", ""}),
              ElementsAre("ValueError: no data"));
  EXPECT_THAT(headline({"pid 7: SIGSEGV", "  #0 main", "\t(no lines)"}),
              ElementsAre("pid 7: SIGSEGV"));
  EXPECT_THAT(headline({"  a", "  b"}), ElementsAre("  b"));
}

TEST(TailTest, AddressesOfLibTorchsStackPushNoMessageOut) {
  Tail tail;
  tail.add("train: shape '[2]' is invalid for input of size 3");
  tail.add("Exception raised from view at View.cpp:7 (most recent call first):");
  for (int i = 0; i < 40; ++i) {
    tail.add("frame #" + std::to_string(i) + ": at::native::view + 0x8d (0x7f12 in libtorch.so)");
  }
  EXPECT_THAT(tail.lines(), ElementsAre("train: shape '[2]' is invalid for input of size 3"));
}

}  // namespace
}  // namespace unisono::launch
