#include "unisono/rendezvous/launchers/launcher_process.h"

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

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

TEST(LauncherProcess, HasSetWhatAVariableWasAtFirst) {
  const char* const path = std::getenv("PATH");
  if (path == nullptr) {
    GTEST_SKIP() << "PATH is not set";
  }
  const std::string entry = "PATH=" + std::string(path);
  ASSERT_EQ(::setenv("PATH", "/elsewhere", 1), 0);
  const std::optional<std::string> value = value_at_start("PATH", {entry});
  ASSERT_EQ(::setenv("PATH", path, 1), 0);
  EXPECT_EQ(value, path);
  EXPECT_EQ(value_at_start("PATH", {entry, entry + "/and/more"}), std::nullopt);
  EXPECT_EQ(value_at_start("UNISONO_TEST_NOBODY_SETS_THIS", {entry}), std::nullopt);
}

}  // namespace
}  // namespace unisono::rendezvous
