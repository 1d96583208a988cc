#include "unisono/health/file_reserve.h"

#include <unistd.h>

#include <chrono>

#include <gtest/gtest.h>

#include "unisono/base/fd.h"

#include "support/file_limit.h"

namespace unisono::health {
namespace {

// The next descriptor that the process would get.
int next_file() {
  return Fd(::dup(STDERR_FILENO)).get();
}

TEST(FileReserve, IsUsedOnceDescriptorsHaveLackedForAWhile) {
  FileReserve reserve;
  const FileReserve::Time start = FileReserve::Time::clock::now();
  const test::FileLimit none_left(static_cast<rlim_t>(next_file()));
  EXPECT_EQ(::dup(STDERR_FILENO), -1);
  constexpr std::chrono::milliseconds kStep{500};
  for (auto time = start; time < start + kFilePatience; time += kStep) {
    EXPECT_FALSE(reserve.note_lack(time));
  }
  EXPECT_TRUE(reserve.note_lack(start + kFilePatience));
  {
    const Fd visitor(::dup(STDERR_FILENO));
    EXPECT_TRUE(visitor.is_open());
    EXPECT_FALSE(reserve.refill());
    EXPECT_FALSE(reserve.note_lack(start + kFilePatience + kStep));
  }
  EXPECT_TRUE(reserve.refill());
  EXPECT_EQ(::dup(STDERR_FILENO), -1);
}

TEST(FileReserve, IsKeptWhereTheyLackedLongBeforeAndCameFree) {
  FileReserve reserve;
  const FileReserve::Time start = FileReserve::Time::clock::now();
  EXPECT_FALSE(reserve.note_lack(start));
  EXPECT_FALSE(reserve.note_lack(start + 2 * kFilePatience));
}

}  // namespace
}  // namespace unisono::health
