#include "unisono/base/error.h"

#include <cerrno>
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(Error, SystemErrorSaysWhatFailedAndWhy) {
  const Error error = system_error("open /no/such", ENOENT);
  EXPECT_EQ(error.code(), ErrorCode::kSystem);
  EXPECT_STREQ(error.what(), "open /no/such: No such file or directory (errno 2)");
}

TEST(Error, CheckThrowsInternalWithTheCondition) {
  try {
    UNISONO_CHECK(1 > 2, "numbers are upside down");
    FAIL() << "a false condition must throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("numbers are upside down (1 > 2 is false"));
  }
}

// The text of c10::Error, alone and within the text of another exception.
TEST(ErrorText, LeavesOutTheStackOfLibTorchUnlessDebugging) {
  ASSERT_EQ(::unsetenv("UNISONO_LOG"), 0);
  const std::string stack =
      "\nException raised from infer_size at ExpandUtils.h:34 (most recent call first):"
      "\nframe #0: c10::Error::Error(std::string) + 0x9d (0x7f5b in libc10.so)"
      "\nframe #1: main + 0x25 (0x40f1 in ./train)";
  const std::string message = "The size of tensor a (3) must match\nthe size of tensor b (4)";
  EXPECT_EQ(error_text(std::runtime_error(message + stack + "\n")), message);
  EXPECT_EQ(error_text(std::runtime_error("a: " + message + stack + "\nb")),
            "a: " + message + "\nb");
  EXPECT_EQ(error_text(std::runtime_error("no data\n")), "no data\n");
  ASSERT_EQ(::setenv("UNISONO_LOG", "debug", 1), 0);
  EXPECT_EQ(error_text(std::runtime_error(message + stack)), message + stack);
  ASSERT_EQ(::unsetenv("UNISONO_LOG"), 0);
}

TEST(Error, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    EXPECT_STRNE(to_string(static_cast<ErrorCode>(code)), "Unknown");
  }
}

}  // namespace
}  // namespace unisono
