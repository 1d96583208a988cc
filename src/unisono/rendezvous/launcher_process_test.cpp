#include "unisono/rendezvous/launcher_process.h"

#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

namespace unisono::rendezvous {
namespace {

TEST(LauncherProcess, IsTheParentWhereNoShellStandsBetween) {
  EXPECT_EQ(process_that_set("UNISONO_TEST_NOBODY_SETS_THIS"), ::getppid());
  // Only the beginning of a name.
  EXPECT_EQ(process_that_set("PAT"), ::getppid());
}

TEST(LauncherProcess, IsNoneOfThoseThatWereStartedWithTheVariable) {
  if (std::getenv("PATH") == nullptr) {
    GTEST_SKIP() << "PATH is not set";
  }
  // This process's parent has it from its own parents.
  EXPECT_NE(process_that_set("PATH"), ::getppid());
}

}  // namespace
}  // namespace unisono::rendezvous
