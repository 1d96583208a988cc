#include "unisono/launch/python_startup.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::launch {
namespace {

using ::testing::StartsWith;

TEST(StartupFolder, LiesBesideTheProgramOfAnInstalledPackage) {
  const test::TemporaryFolder package;
  (void)package.write("_startup/sitecustomize.py", "");
  EXPECT_EQ(find_startup_folder(package.path() + "/bin", ""), package.path() + "/_startup");
}

TEST(StartupFolder, LiesInThePackageOfABuildTree) {
  const test::TemporaryFolder build;
  (void)build.write("python/unisono/_startup/sitecustomize.py", "");
  EXPECT_EQ(find_startup_folder(build.path() + "/bin", ""),
            build.path() + "/python/unisono/_startup");
}

TEST(StartupFolder, LiesInThePackageThatThePythonFinds) {
  const test::TemporaryFolder prefix;
  const std::string package = prefix.path() + "/lib/site-packages/unisono";
  (void)prefix.write("lib/site-packages/unisono/_startup/sitecustomize.py", "");
  // A Python may write something when it starts.
  const std::string python =
      prefix.write("bin/python3", "#!/bin/sh\necho hello\nprintf %s " + package + "\n", 0755);
  EXPECT_EQ(find_startup_folder(prefix.path() + "/bin", python), package + "/_startup");
}

TEST(StartupFolder, ThatIsMissingIsExplained) {
  const test::TemporaryFolder prefix;
  (void)prefix.write("_startup/other.py", "");
  const std::string bin = prefix.path() + "/bin";
  const std::string none = "the unisono in " + bin + " has no Python package beside it, and ";
  EXPECT_THAT([&] { (void)find_startup_folder(bin, ""); },
              test::throws_error(ErrorCode::kNotFound, none + "there is no python3 in PATH"));
  // The package that it finds may be another of that name.
  const std::string python =
      prefix.write("bin/python3", "#!/bin/sh\nprintf %s " + prefix.path() + "/other\n", 0755);
  for (const std::string& finds_none : {python, std::string("/bin/true"), bin + "/no-python"}) {
    EXPECT_THAT([&] { (void)find_startup_folder(bin, finds_none); },
                test::throws_error(ErrorCode::kNotFound,
                                   none + finds_none + " finds no module unisono",
                                   "install the package"));
  }
}

TEST(AliasVariables, ThatCantBeUsedAreExplained) {
  try {
    (void)alias_variables("gloo=nccl", "");
    FAIL() << "a name can only mean unisono";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), StartsWith("names of backends: \"gloo=nccl\""));
  }
}

}  // namespace
}  // namespace unisono::launch
