// Start of the ranks: program, arguments, environment, stdin.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/process.h"
#include "unisono/net/address.h"
#include "unisono/net/ports.h"

#include "launch_run.h"
#include "support/temporary_folder.h"

namespace unisono::launch_test {
namespace {

using test::read_file;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(LaunchStart, ArgumentsArriveUnchanged) {
  const std::vector<std::string> arguments{"args",
                                           "",
                                           "--",
                                           "-n",
                                           "7",
                                           "--prefix",
                                           "--help",
                                           "a b",
                                           "\"q'\\$x*",
                                           "ö",
                                           "line\nbreak",
                                           "-"};
  const RunResult result = run_to_end({.arguments = probe({"-n", "1"}, arguments)});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::string expected = "<" UNISONO_PROBE ">\n";
  for (const std::string& argument : arguments) {
    expected += "<" + argument + ">\n";
  }
  EXPECT_EQ(result.out, expected);
  EXPECT_EQ(result.err, "");
}

TEST(LaunchStart, ADoubleDashEndsTheOptions) {
  const RunResult result = run_to_end({.arguments = probe({"-n", "1", "--"}, {"args", "--"})});
  EXPECT_EQ(result.out, "<" UNISONO_PROBE ">\n<args>\n<-->\n") << result.err;
}

TEST(LaunchStart, AProgramMayHaveTheNameOfACommand) {
  const TemporaryFolder folder;
  (void)folder.write("config", "#!/bin/sh\necho mine $1\n", 0755);
  const RunResult result =
      run_to_end({.arguments = {"run", "config", "run"},
                  .environment = {"PATH=" + folder.path() + ":/usr/bin:/bin"}});
  EXPECT_EQ(result.out, "mine run\n") << result.err;
}

TEST(LaunchStart, PythonFilesRunUnderPython) {
  const TemporaryFolder folder;
  (void)folder.write("python3", "#!/bin/sh\necho python \"$@\"\n", 0755);
  const std::string script = folder.write("train.py", "", 0644);
  const std::string path = "PATH=" + folder.path() + ":/usr/bin:/bin";
  EXPECT_EQ(run_to_end({.arguments = {"run", script, "-m"}, .environment = {path}}).out,
            "python -u " + script + " -m\n");
  EXPECT_EQ(run_to_end({.arguments = {"run", "-m", "a.b", "c"}, .environment = {path}}).out,
            "python -u -m a.b c\n");
  EXPECT_EQ(
      run_to_end({.arguments = {"run", "--no-python", script}, .environment = {path}}).exit_code,
      126);
}

TEST(LaunchStart, EveryRankRunsOnce) {
  for (const char* option : {"-n", "--nproc-per-node", "--nproc_per_node"}) {
    const RunResult result =
        run_to_end({.arguments = probe({option, "2"}, {"environment", "RANK"})});
    std::vector<std::string> lines = split_lines(result.out);
    std::ranges::sort(lines);
    EXPECT_THAT(lines, ElementsAre("RANK=0", "RANK=1")) << option << result.err;
  }
}

TEST(LaunchStart, ARankMayStartRanksOfItsOwnAtAnotherPort) {
  const net::PortReservation reserved(net::resolve("127.0.0.1", 0).front());
  const std::string script =
      "\"$0\" 0 2 $1 & \"$0\" 1 2 $1 & wait $! && MASTER_PORT=$1 \"$0\" 0 1 && wait";
  const RunResult result = run_to_end({.arguments = {"run",
                                                     "-n",
                                                     "1",
                                                     "sh",
                                                     "-c",
                                                     script,
                                                     UNISONO_RANK_PROGRAM,
                                                     std::to_string(reserved.port())}});
  std::vector<std::string> lines = split_lines(result.out);
  std::ranges::sort(lines);
  EXPECT_THAT(
      lines,
      ElementsAre(
          "(0,1) all_reduce(ones)=1", "(0,2) all_reduce(ones)=2", "(1,2) all_reduce(ones)=2"))
      << result.err;
  EXPECT_EQ(result.exit_code, 0);
}

TEST(LaunchStart, AutoMeansOnePerCore) {
  for (const char* number : {"auto", "cpu"}) {
    const RunResult result =
        run_to_end({.arguments = probe({std::string("--nproc_per_node=") + number},
                                       {"environment", "WORLD_SIZE", "OMP_NUM_THREADS"}),
                    .environment = {"OMP_NUM_THREADS"}});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(count(result.out, "WORLD_SIZE=" + std::to_string(available_cores()) + "\n"),
              available_cores());
    EXPECT_EQ(count(result.out, "OMP_NUM_THREADS=1\n"), available_cores());
  }
}

TEST(LaunchStart, TheEnvironmentIsTheGoldenTable) {
  const RunResult result = run_to_end(
      {.arguments = probe({"-n", "3", "--master-port", "0", "--prefix"},
                          {"environment",
                           "MASTER_ADDR",
                           "RANK",
                           "WORLD_SIZE",
                           "LOCAL_RANK",
                           "LOCAL_WORLD_SIZE",
                           "GROUP_RANK",
                           "GROUP_WORLD_SIZE",
                           "ROLE_RANK",
                           "ROLE_NAME",
                           "ROLE_WORLD_SIZE",
                           "TORCHELASTIC_RESTART_COUNT",
                           "TORCHELASTIC_MAX_RESTARTS",
                           "OMP_NUM_THREADS",
                           "MINE"}),
       .environment = {"RANK=77", "MASTER_ADDR=elsewhere", "MINE=kept", "OMP_NUM_THREADS=5"}});
  for (int rank = 0; rank < 3; ++rank) {
    const std::string r = std::to_string(rank);
    std::vector<std::string> mine;
    for (const std::string& line : split_lines(result.out)) {
      if (line.starts_with("[rank " + r + "] ")) {
        mine.push_back(line.substr(9));
      }
    }
    EXPECT_THAT(mine,
                ElementsAre("MASTER_ADDR=127.0.0.1",
                            "RANK=" + r,
                            "WORLD_SIZE=3",
                            "LOCAL_RANK=" + r,
                            "LOCAL_WORLD_SIZE=3",
                            "GROUP_RANK=0",
                            "GROUP_WORLD_SIZE=1",
                            "ROLE_RANK=" + r,
                            "ROLE_NAME=default",
                            "ROLE_WORLD_SIZE=3",
                            "TORCHELASTIC_RESTART_COUNT=0",
                            "TORCHELASTIC_MAX_RESTARTS=0",
                            "OMP_NUM_THREADS=5",
                            "MINE=kept"));
  }
}

TEST(LaunchStart, RanksShareAPortAndAFreshSecret) {
  const std::vector<std::string> names{
      "environment", "MASTER_PORT", "UNISONO_SECRET", "TORCHELASTIC_RUN_ID"};
  std::vector<std::string> secrets;
  for (int job = 0; job < 2; ++job) {
    const RunResult result = run_to_end({.arguments = probe({"-n", "2"}, names),
                                         .environment = {"UNISONO_SECRET", "UNISONO_SECRET_FILE"}});
    std::vector<std::string> lines = split_lines(result.out);
    std::ranges::sort(lines);
    ASSERT_EQ(lines.size(), 6U);
    EXPECT_THAT(lines[0], MatchesRegex("MASTER_PORT=[1-9][0-9]+"));
    EXPECT_THAT(lines[2], MatchesRegex("TORCHELASTIC_RUN_ID=[0-9a-f]+"));
    EXPECT_THAT(lines[4], MatchesRegex("UNISONO_SECRET=[0-9a-f]+"));
    EXPECT_EQ(lines[4].size(), std::string("UNISONO_SECRET=").size() + 64);
    EXPECT_EQ(lines[0], lines[1]);
    EXPECT_EQ(lines[2], lines[3]);
    EXPECT_EQ(lines[4], lines[5]);
    secrets.push_back(lines[4]);
  }
  EXPECT_NE(secrets[0], secrets[1]);
}

TEST(LaunchStart, ASecretThatIsThereStays) {
  const RunResult result = run_to_end({.arguments = probe({}, {"environment", "UNISONO_SECRET"}),
                                       .environment = {"UNISONO_SECRET=mine"}});
  EXPECT_EQ(result.out, "UNISONO_SECRET=mine\n");
}

TEST(LaunchStart, TheSecretIsOnNoCommandLine) {
  LaunchRun run({.arguments = probe({"-n", "2"}, {"wait"}),
                 .environment = {"UNISONO_SECRET=do-not-show-me"}});
  run.wait_for_output("ready", 2);
  const std::vector<pid_t> all = run.marked();
  EXPECT_EQ(all.size(), 4U);
  for (const pid_t pid : all) {
    EXPECT_EQ(count(read_file("/proc/" + std::to_string(pid) + "/cmdline"), "do-not-show"), 0);
  }
}

TEST(LaunchStart, OnlyRankZeroReadsStdin) {
  const TemporaryFolder folder;
  const Fd input(::open(folder.write("input", "hello", 0600).c_str(), O_RDONLY | O_CLOEXEC));
  const RunResult result =
      run_to_end({.arguments = probe({"-n", "2"}, {"stdin"}), .stdin_fd = input.get()});
  std::vector<std::string> lines = split_lines(result.out);
  std::ranges::sort(lines);
  EXPECT_THAT(lines, ElementsAre("rank 0 read:hello", "rank 1 read:"));
}

TEST(LaunchStart, AMissingProgramIsOneMessage) {
  const RunResult result = run_to_end(
      {.arguments = {"run", "-n", "4", "no-such-program"}, .environment = {"PATH=/none"}});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "[unisono] error: cannot start no-such-program: not found in PATH=/none\n");
}

TEST(LaunchStart, WhatCantBeExecutedIsOneMessage) {
  const TemporaryFolder folder;
  const std::string plain = folder.write("plain", "text", 0644);
  const RunResult result = run_to_end({.arguments = {"run", "-n", "4", plain}});
  EXPECT_EQ(result.exit_code, 126);
  EXPECT_THAT(result.err, AllOf(HasSubstr(plain), HasSubstr("errno 13")));
  EXPECT_EQ(split_lines(result.err).size(), 1U);
}

TEST(LaunchStart, AFailedExecIsOneMessage) {
  const TemporaryFolder folder;
  const std::string script = folder.write("script", "#!/no/such/interpreter\n", 0755);
  const RunResult result = run_to_end({.arguments = {"run", "-n", "4", script}});
  EXPECT_EQ(result.exit_code, 127);
  EXPECT_THAT(result.err, AllOf(HasSubstr(script), HasSubstr("interpreter")));
  EXPECT_EQ(split_lines(result.err).size(), 1U);
}

TEST(LaunchStart, AMissingProgramNameIsExplained) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"run"}, {"run", "-n", "2"}, {"run", "--"}}) {
    const RunResult result = run_to_end({.arguments = arguments});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(result.err, HasSubstr("no program was given"));
    EXPECT_EQ(split_lines(result.err).size(), 1U) << result.err;
  }
}

TEST(LaunchStart, ANumberOfRanksThatIsNoneIsExplained) {
  for (const std::string number : {"0", "-1", "abc", "", "2x", "99999999999", "1.5"}) {
    const RunResult result = run_to_end({.arguments = probe({"-n", number}, {"args"})});
    EXPECT_EQ(result.exit_code, 2) << number;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("number of ranks \"" + number + "\""));
  }
}

TEST(LaunchStart, AnUnknownOptionIsExplained) {
  const RunResult result = run_to_end({.arguments = probe({"--no-such-option"}, {"args"})});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("there is no option --no-such-option"));
  EXPECT_EQ(result.out, "");
}

TEST(LaunchStart, ABackendAliasThatIsNoneIsExplained) {
  for (const char* alias : {"", "gloo", "gloo=nccl", "=unisono", "gloo=unisono,gloo=unisono"}) {
    for (const std::string option : {"--backend-alias", "--backend_alias"}) {
      const RunResult result = run_to_end({.arguments = probe({option, alias}, {"args"})});
      EXPECT_EQ(result.exit_code, 2) << alias;
      EXPECT_EQ(result.out, "");
      EXPECT_THAT(result.err, HasSubstr("names of backends: "));
      EXPECT_EQ(split_lines(result.err).size(), 1U) << result.err;
    }
  }
}

TEST(LaunchStart, APortInUseIsExplainedWithItsHolder) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(::bind(listener.get(), generic, size), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), generic, &size), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  const RunResult result = run_to_end({.arguments = probe({"--master-port", port}, {"args"})});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(
      result.err,
      AllOf(HasSubstr("port " + port), HasSubstr("process " + std::to_string(::getpid()) + " (")));
}

TEST(LaunchProgram, ConfigPrintsTheTable) {
  const RunResult result =
      run_to_end({.arguments = {"config"}, .environment = {"UNISONO_STALL_SECONDS=7"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("UNISONO_SECRET (text, default none"));
  EXPECT_THAT(result.out, HasSubstr("UNISONO_STALL_SECONDS (seconds, default 5; set in"));
}

TEST(LaunchProgram, VersionAndHelp) {
  EXPECT_THAT(run_to_end({.arguments = {"--version"}}).out, MatchesRegex("unisono [0-9.]+\n"));
  EXPECT_THAT(run_to_end({.arguments = {"run", "--help"}}).out, HasSubstr("--nproc-per-node"));
  EXPECT_EQ(run_to_end({.arguments = {"walk"}}).exit_code, 2);
}

}  // namespace
}  // namespace unisono::launch_test
