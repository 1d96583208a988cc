#include "unisono/launch/python_startup.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"

namespace unisono::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(StartupFolder, LiesBesideTheProgramOfAnInstalledPackage) {
  const test::TemporaryFolder package;
  (void)package.write("_startup/sitecustomize.py", "");
  EXPECT_EQ(find_startup_folder(package.path() + "/bin"), package.path() + "/_startup");
}

TEST(StartupFolder, LiesInThePackageOfABuildTree) {
  const test::TemporaryFolder build;
  (void)build.write("python/unisono/_startup/sitecustomize.py", "");
  EXPECT_EQ(find_startup_folder(build.path() + "/bin"), build.path() + "/python/unisono/_startup");
}

TEST(StartupFolder, ThatIsMissingIsExplained) {
  const test::TemporaryFolder prefix;
  (void)prefix.write("_startup/other.py", "");
  try {
    (void)find_startup_folder(prefix.path() + "/bin");
    FAIL() << "there is none";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("the unisono in " + prefix.path() + "/bin has no Python package"),
                      HasSubstr("python -m unisono run")));
  }
}

TEST(AliasVariables, ThatCantBeUsedAreExplained) {
  try {
    (void)alias_variables("gloo=nccl");
    FAIL() << "a name can only mean unisono";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), StartsWith("names of backends: \"gloo=nccl\""));
  }
}

}  // namespace
}  // namespace unisono::launch
