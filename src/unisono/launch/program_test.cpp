#include "unisono/launch/program.h"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace unisono::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FindProgram : public ::testing::Test {
 protected:
  FindProgram() { std::filesystem::create_directories(folder_.path() + "/second/folder"); }

  std::string make(const std::string& name, unsigned mode) {
    return folder_.write(name, "#!/bin/sh\n", mode);
  }

  Program find(const ProgramRequest& request) { return find_program(request, environment_); }

  // Returns exit code and message of the error.
  std::pair<int, std::string> error_of(const ProgramRequest& request) {
    try {
      (void)find(request);
    } catch (const ProgramError& error) {
      return {error.exit_code(), error.what()};
    }
    return {0, "found"};
  }

  test::TemporaryFolder folder_;
  Environment environment_ = [this](const char* name) {
    return std::string(name) == "PATH"
               ? std::optional(folder_.path() + "/first:" + folder_.path() + "/second")
               : std::nullopt;
  };
};

TEST_F(FindProgram, SearchesPathInOrderAndKeepsTheNameAsTyped) {
  make("first/tool", 0644);
  const std::string path = make("second/tool", 0755);
  const Program program = find({.argv = {"tool", "", "--", "-x"}});
  EXPECT_EQ(program.path, path);
  EXPECT_THAT(program.argv, ElementsAre("tool", "", "--", "-x"));
}

TEST_F(FindProgram, PythonFilesRunUnderThePythonThatHasInstalledTheLauncher) {
  const std::string in_path = make("first/python3", 0755);
  const std::string script = make("train.py", 0644);
  std::filesystem::create_directories(folder_.path() + "/env/bin");
  const std::string package = folder_.path() + "/env/lib/python3.11/site-packages/unisono";
  ProgramRequest request{.argv = {script}, .launcher = package + "/bin/unisono"};
  EXPECT_EQ(find(request).path, in_path) << "that Python is gone";
  const std::string python = make("env/bin/python3.11", 0755);
  EXPECT_THAT(find(request).argv, ElementsAre(python, "-u", script));
  EXPECT_EQ(find(request).path, python);
  request.launcher = folder_.path() + "/env/bin/unisono";
  EXPECT_EQ(find(request).path, in_path) << "the launcher is of no package";
}

TEST_F(FindProgram, ANameWithASlashIsNotSearched) {
  const std::string path = make("tool", 0755);
  EXPECT_EQ(find({.argv = {path}}).path, path);
  EXPECT_THAT(error_of({.argv = {"second/../tool"}}).second, HasSubstr("No such file"));
}

TEST_F(FindProgram, SaysWhereItLooked) {
  const auto [code, message] = error_of({.argv = {"absent"}});
  EXPECT_EQ(code, 127);
  EXPECT_THAT(message, AllOf(HasSubstr("cannot start absent"), HasSubstr("/first:")));
  EXPECT_EQ(error_of({.argv = {""}}).first, 127);
}

TEST_F(FindProgram, WhatCantBeExecutedIsAnotherError) {
  const std::string plain = make("second/plain", 0644);
  for (const std::string& name : {std::string("plain"), plain}) {
    const auto [code, message] = error_of({.argv = {name}});
    EXPECT_EQ(code, 126);
    EXPECT_THAT(message, AllOf(HasSubstr(plain), HasSubstr("errno 13"), HasSubstr("chmod +x")));
  }
  EXPECT_EQ(error_of({.argv = {folder_.path()}}).first, 126);
  EXPECT_EQ(error_of({.argv = {plain + "/below"}}).first, 127);
}

TEST_F(FindProgram, PythonFilesAndModulesRunUnderPython) {
  const std::string python = make("first/python3", 0755);
  const std::string script = make("train.py", 0755);
  EXPECT_THAT(find({.argv = {script, "--lr"}}).argv, ElementsAre(python, "-u", script, "--lr"));
  EXPECT_EQ(find({.argv = {script}}).path, python);
  EXPECT_THAT(find({.argv = {"pkg.mod", "a"}, .is_module = true}).argv,
              ElementsAre(python, "-u", "-m", "pkg.mod", "a"));
  EXPECT_EQ(find({.argv = {script}, .no_python = true}).path, script);
  EXPECT_EQ(error_of({.argv = {"absent.py"}}).first, 127);
}

TEST_F(FindProgram, AnotherPythonMayBeNamed) {
  const std::string python = make("own/interpreter", 0755);
  const std::string in_path = make("second/pypy3", 0755);
  const std::string script = folder_.write("train.py", "", 0644);
  std::string named = python;
  environment_ = [before = environment_, &named](const char* name) {
    return std::string(name) == "PYTHON_EXEC" ? std::optional(named) : before(name);
  };
  const Program program = find({.argv = {script}});
  EXPECT_EQ(program.path, python);
  EXPECT_THAT(program.argv, ElementsAre(python, "-u", script));
  EXPECT_TRUE(is_python(program));
  EXPECT_EQ(python_of(program, environment_), python);
  named = "pypy3";
  EXPECT_EQ(find({.argv = {"package"}, .is_module = true}).path, in_path);
  named = folder_.path() + "/own/nothing";
  EXPECT_EQ(error_of({.argv = {script}}).first, 127);
  EXPECT_THAT(error_of({.argv = {script}}).second,
              AllOf(HasSubstr(named), HasSubstr("PYTHON_EXEC")));
}

// argparse distinguishes the two spellings.
TEST_F(FindProgram, TheLocalRankIsSpelledAsTheScriptReadsIt) {
  make("second/python3", 0755);
  const auto option_for = [this](const std::string& text) {
    return find({.argv = {folder_.write("train.py", text, 0644)}, .takes_local_rank = true})
        .local_rank_option;
  };
  EXPECT_EQ(option_for("parser.add_argument('--local-rank', type=int)"), "--local-rank");
  EXPECT_EQ(option_for("parser.add_argument('--local_rank', type=int)"), "--local_rank");
  EXPECT_EQ(option_for("parser.add_argument('--local-rank', '--local_rank')"), "--local_rank");
  EXPECT_EQ(option_for(""), "--local_rank");
}

TEST_F(FindProgram, ANameThatIsNearlyThatOfAFileIsAnsweredWithIt) {
  const std::string program = make("bin/hello_all_reduce", 0755);
  make("bin/other", 0755);
  const std::string script = folder_.write("bin/train.py", "", 0644);
  EXPECT_THAT(error_of({.argv = {folder_.path() + "/bin/hello_allreduce"}}).second,
              HasSubstr("; did you mean " + program + "?"));
  EXPECT_THAT(error_of({.argv = {folder_.path() + "/bin/traain.py"}}).second,
              HasSubstr("; did you mean " + script + "?"));
  EXPECT_THAT(error_of({.argv = {folder_.path() + "/bin/mnist"}}).second,
              ::testing::Not(HasSubstr("did you mean")));
}

TEST_F(FindProgram, AMissingPythonIsNamed) {
  const auto [code, message] = error_of({.argv = {"mod"}, .is_module = true});
  EXPECT_EQ(code, 127);
  EXPECT_THAT(message, HasSubstr("python3, which runs Python programs"));
}

TEST_F(FindProgram, KnowsTheProgramsPython) {
  const std::string python3 = make("first/python3", 0755);
  const std::string python3_9 = make("second/python3.9", 0755);
  const auto python = [this](const std::string& path) {
    return python_of({.path = path, .argv = {}}, environment_);
  };
  const auto script = [&](const std::string& first_line) {
    return python(folder_.write("script", first_line + "\nprint()\n", 0755));
  };
  EXPECT_EQ(python("/venv/bin/python"), "/venv/bin/python");
  EXPECT_EQ(script("#!/venv/bin/python3.11 -u"), "/venv/bin/python3.11");
  EXPECT_EQ(script("#!/usr/bin/env -S python3.9 -u"), python3_9);
  EXPECT_EQ(script("#!/usr/bin/env python2"), "");
  EXPECT_EQ(script("#!/bin/sh"), python3);
  EXPECT_EQ(python("/bin/true"), python3);
}

TEST(ExecError, ExplainsWhatTheFileLacks) {
  const Program program{.path = "./x", .argv = {"x"}};
  EXPECT_EQ(exec_error(program, ENOENT).exit_code(), 127);
  EXPECT_EQ(exec_error(program, ENOEXEC).exit_code(), 126);
  EXPECT_THAT(exec_error(program, ENOENT).what(), HasSubstr("interpreter"));
  EXPECT_THAT(exec_error(program, ENOEXEC).what(), HasSubstr("#!"));
}

}  // namespace
}  // namespace unisono::launch
