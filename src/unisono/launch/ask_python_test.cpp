#include "unisono/launch/ask_python.h"

#include <chrono>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"

#include "support/temporary_folder.h"

namespace unisono::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AskPython : public ::testing::Test {
 protected:
  // What a Python answers that is this script of the shell.
  [[nodiscard]] std::optional<std::string> ask(const std::string& script,
                                               Deadline deadline = Deadline::after(seconds(30))) {
    return ask_python(
        folder_.write("python", "#!/bin/sh\n" + script + "\n", 0755), "code", deadline);
  }

  test::TemporaryFolder folder_;
};

TEST_F(AskPython, ReturnsTheLastLine) {
  EXPECT_EQ(ask("echo one; printf two"), "two");
  EXPECT_EQ(ask("printf '%s %s' \"$1\" \"$2\""), "-c code");
}

TEST_F(AskPython, ReturnsNothingWhereNothingIsSaid) {
  EXPECT_EQ(ask("exit 0"), std::nullopt);
  EXPECT_EQ(ask("echo problem >&2; exit 1"), std::nullopt);
  EXPECT_EQ(ask_python("/no/python", "code", Deadline::after(seconds(30))), std::nullopt);
}

TEST_F(AskPython, WaitsNoLongerThanTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ask("printf answer; exec sleep 60", Deadline::after(milliseconds(300))), std::nullopt);
  // It may close stdout long before it ends.
  EXPECT_EQ(ask("printf answer; exec sleep 60 >&-"), "answer");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
}

TEST_F(AskPython, TakesNoEndlessAnswer) {
  EXPECT_EQ(ask("exec yes"), std::nullopt);
}

}  // namespace
}  // namespace unisono::launch
