#include "unisono/launch/error_file.h"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace unisono::launch {
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
}  // namespace unisono::launch
