#include "unisono/launch/python_startup.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class AskPython : public ::testing::Test {
 protected:
  // Returns the answer of a fake Python that runs this shell script.
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
  // The process may close stdout long before its end.
  EXPECT_EQ(ask("printf answer; exec sleep 60 >&-"), "answer");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
}

TEST_F(AskPython, TakesNoEndlessAnswer) {
  EXPECT_EQ(ask("exec yes"), std::nullopt);
}

}  // namespace

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
  // A Python may print text during its start.
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
  // The package that Python finds may be another package of this name.
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
