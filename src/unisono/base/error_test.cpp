#include "unisono/base/error.h"

#include <cerrno>
#include <string>

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

TEST(Error, EveryCodeHasAName) {
  for (int code = 0; code <= static_cast<int>(ErrorCode::kInternal); ++code) {
    EXPECT_STRNE(to_string(static_cast<ErrorCode>(code)), "Unknown");
  }
}

}  // namespace
}  // namespace unisono
