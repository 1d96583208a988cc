#include "unisono/launch/program.h"

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
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

  Program find(const ProgramRequest& request) {
    const std::string path = folder_.path() + "/first:" + folder_.path() + "/second";
    return find_program(request, [path](const char* name) -> std::optional<std::string> {
      return std::string(name) == "PATH" ? std::optional(path) : std::nullopt;
    });
  }

  // Exit code and message of the error.
  std::pair<int, std::string> error_of(const ProgramRequest& request) {
    try {
      (void)find(request);
    } catch (const ProgramError& error) {
      return {error.exit_code(), error.what()};
    }
    return {0, "found"};
  }

  test::TemporaryFolder folder_;
};

TEST_F(FindProgram, SearchesPathInOrderAndKeepsTheNameAsTyped) {
  make("first/tool", 0644);
  const std::string path = make("second/tool", 0755);
  const Program program = find({.argv = {"tool", "", "--", "-x"}});
  EXPECT_EQ(program.path, path);
  EXPECT_THAT(program.argv, ElementsAre("tool", "", "--", "-x"));
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

TEST_F(FindProgram, AMissingPythonIsNamed) {
  const auto [code, message] = error_of({.argv = {"mod"}, .is_module = true});
  EXPECT_EQ(code, 127);
  EXPECT_THAT(message, HasSubstr("python3, which runs Python programs"));
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
