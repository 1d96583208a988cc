// Ranks that are started wrongly get one clear message each, at once.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr std::chrono::seconds kAtOnce{10};

// Expects one line on stderr that the program itself has written.
void expect_one_message(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, MatchesRegex("rank_program: [^\n]*\n"));
}

TEST(BadStart, APortInUseNamesItsHolder) {
  Job job({.world_size = 2});
  job.port().listen();
  job.start(0);
  const std::vector<ProcessResult> results = job.processes().finish(kAtOnce);
  expect_one_message(results[0]);
  EXPECT_THAT(results[0].err,
              AllOf(HasSubstr(job.port().text()),
                    HasSubstr("in use by process " + std::to_string(::getpid()))));
}

// One process serves the store, and the other process finds the port in use.
TEST(BadStart, Rank0GivenTwiceIsNamedToAll) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{}, std::vector<std::string>{"a", "b", "b"}}) {
    Job job({.world_size = 3, .nodes = nodes});
    job.start(0);
    job.start(0);
    job.start(1);
    for (const ProcessResult& result : job.processes().finish(kAtOnce)) {
      expect_one_message(result);
      EXPECT_THAT(result.err,
                  AllOf(HasSubstr("RANK=0 was given to 2 processes"),
                        HasSubstr(", or two jobs use MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
                                  job.port().text()),
                        HasSubstr("pid " + std::to_string(job.processes().pid(0)) + " on "),
                        HasSubstr("pid " + std::to_string(job.processes().pid(1)) + " on ")));
    }
  }
}

TEST(BadStart, ALaterRank0IsToldWhoWasHereBeforeAndDoesNoHarm) {
  Job job({.world_size = 2, .mode = {"stream", "private"}});
  job.start_all();
  for (const std::size_t rank : {0U, 1U}) {
    if (!job.processes().wait_for_output(rank, "streaming\n")) {
      return;
    }
  }
  job.start(0);
  EXPECT_TRUE(
      job.processes().wait_for_output(2, "rank 0 (pid " + std::to_string(job.processes().pid(0))));
  job.processes().close_stdin(0);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_EQ(results[0].exit_code, 0) << results[0].err;
  EXPECT_EQ(results[1].exit_code, 0) << results[1].err;
  expect_one_message(results[2]);
  EXPECT_THAT(results[2].err,
              AllOf(HasSubstr("all 2 ranks have joined already, without rank 0"),
                    HasSubstr("another job may use MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
                              job.port().text())));
}

// Returns the environment that srun sets.
Variables task(const std::string& job_id, const std::string& step, int rank) {
  return {{"SLURM_JOB_ID", job_id},
          {"SLURM_STEP_ID", step},
          {"SLURM_STEP_NODELIST", "localhost"},
          {"SLURM_NTASKS", "2"},
          {"SLURM_PROCID", std::to_string(rank)}};
}

// Starts a task with the environment of srun, except for the address and port of the store.
std::size_t start_task(Job& job, const std::string& step, int rank) {
  Variables variables = task("4540", step, rank);
  variables.insert({{"UNISONO_LOG", "debug"}, {"MASTER_PORT", job.port().text()}});
  return job.processes().start({UNISONO_RANK_PROGRAM, "stream", "private"}, variables);
}

TEST(BadStart, VariablesAreNamedUnderALauncherWhereTheyToldTheRank) {
  const auto expect = [](const Variables& own, int procid_of_second, const std::string& complaint) {
    Processes processes;
    for (const int rank : {0, procid_of_second}) {
      // Slurm derives the port from the job id.
      Variables variables = task(std::to_string(::getpid()), "0", rank);
      variables.insert(own.begin(), own.end());
      (void)processes.start({UNISONO_RANK_PROGRAM, "stream", "private"}, variables);
    }
    for (const ProcessResult& result : processes.finish(kAtOnce)) {
      EXPECT_EQ(result.exit_code, 1);
      EXPECT_THAT(result.err,
                  AllOf(HasSubstr(complaint), HasSubstr("(from the variables of Slurm)")));
    }
  };
  expect({{"RANK", "0"}}, 1, "rendezvous: RANK=0 was given to 2 processes: ");
  expect({}, 0, "rendezvous: rank 0 was given to 2 processes: ");
}

// The ranks of the second step connect before and after the rendezvous of the first job.
TEST(BadStart, ASecondStepAtThePortIsToldSoAndDoesNoHarm) {
  Job job({.world_size = 2});
  const auto expect_refusal = [&](int rank) {
    const std::size_t i = start_task(job, "1", rank);
    EXPECT_TRUE(job.processes().wait_for_output(i, "MASTER_PORT=" + job.port().text()));
    EXPECT_TRUE(job.processes().wait_for_output(
        i,
        "another job meets there, SLURM_JOB_ID=4540, SLURM_STEP_ID=0, and this one is "
        "SLURM_JOB_ID=4540, SLURM_STEP_ID=1; give them different MASTER_PORTs\n"));
  };
  const std::size_t first = start_task(job, "0", 0);
  EXPECT_TRUE(job.processes().wait_for_output(first, "connected to the store"));
  expect_refusal(0);
  expect_refusal(1);
  const std::size_t second = start_task(job, "0", 1);
  EXPECT_TRUE(job.processes().wait_for_output(first, "streaming\n"));
  expect_refusal(1);
  expect_refusal(0);
  job.processes().close_stdin(first);
  const std::vector<ProcessResult> results = job.processes().finish();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool is_refused = i != first && i != second;
    EXPECT_EQ(results[i].exit_code, is_refused ? 1 : 0) << results[i].err;
  }
}

TEST(BadStart, TheOthersHearThatRank0HasEnded) {
  Job job({.world_size = 3, .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
  job.start(0);
  job.start(1);
  if (!job.processes().wait_for_output(1, "has waited")) {
    return;
  }
  job.processes().send_signal(0, SIGKILL);
  const std::vector<ProcessResult> results = job.processes().finish(kAtOnce);
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_THAT(results[1].err,
              AllOf(HasSubstr("rank_program: rendezvous: rank 1 has lost the store at "
                              "MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
                              job.port().text()),
                    HasSubstr("rank 0, which serves it, has ended"),
                    HasSubstr("see the output of rank 0")));
}

struct BadEnvironment {
  std::string name;
  Variables variables;
  std::vector<std::string> complaints;

  friend std::ostream& operator<<(std::ostream& out, const BadEnvironment& environment) {
    return out << environment.name;
  }
};

class BadVariables : public ::testing::TestWithParam<BadEnvironment> {};

TEST_P(BadVariables, AreAllInOneMessage) {
  Processes processes;
  (void)processes.start({UNISONO_RANK_PROGRAM, "hello"}, GetParam().variables);
  const std::vector<ProcessResult> results = processes.finish(kAtOnce);
  expect_one_message(results[0]);
  for (const std::string& complaint : GetParam().complaints) {
    EXPECT_THAT(results[0].err, HasSubstr(complaint));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Environments,
    BadVariables,
    ::testing::Values(
        BadEnvironment{"None", {}, {"MASTER_ADDR", "WORLD_SIZE is not set", "RANK is not set"}},
        BadEnvironment{"RankMissing",
                       {{"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}, {"WORLD_SIZE", "2"}},
                       {"RANK is not set"}},
        BadEnvironment{"NoNumbers",
                       {{"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "http"},
                        {"WORLD_SIZE", "two"},
                        {"RANK", "1x"}},
                       {"MASTER_PORT=\"http\"", "WORLD_SIZE=\"two\"", "RANK=\"1x\""}},
        BadEnvironment{"RankTooLarge",
                       {{"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "1"},
                        {"WORLD_SIZE", "2"},
                        {"RANK", "2"}},
                       {"RANK=2 is not below WORLD_SIZE=2"}},
        BadEnvironment{"Settings",
                       {{"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "1"},
                        {"WORLD_SIZE", "1"},
                        {"RANK", "0"},
                        {"UNISONO_TIMEOUT_SECONDS", "soon"},
                        {"UNISONO_LOG", "loud"}},
                       {"UNISONO_TIMEOUT_SECONDS=\"soon\"", "UNISONO_LOG=\"loud\""}},
        // Wrong in both kinds of variables: still one message with all of them.
        BadEnvironment{"SettingsAndRank",
                       {{"MASTER_ADDR", "127.0.0.1"},
                        {"MASTER_PORT", "1"},
                        {"WORLD_SIZE", "1"},
                        {"RANK", "x"},
                        {"UNISONO_LOG", "loud"}},
                       {"RANK=\"x\"", "UNISONO_LOG=\"loud\""}}),
    [](const auto& case_info) { return case_info.param.name; });

TEST(BadStart, TwoProcessesOfOneRankAreNamedToAll) {
  Job job({.world_size = 3});
  job.start(0);
  job.start(1);
  job.start(1);
  for (const ProcessResult& result : job.processes().finish(kAtOnce)) {
    expect_one_message(result);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("RANK=1 was given to 2 processes"),
                      HasSubstr("pid " + std::to_string(job.processes().pid(1)) + " on "),
                      HasSubstr("pid " + std::to_string(job.processes().pid(2)) + " on ")));
  }
}

TEST(BadStart, UnequalWorldSizesAreNamedToAll) {
  Job job({.world_size = 2});
  job.start(0);
  job.start(1, {{"WORLD_SIZE", "3"}});
  for (const ProcessResult& result : job.processes().finish(kAtOnce)) {
    expect_one_message(result);
    EXPECT_THAT(
        result.err,
        AllOf(HasSubstr("WORLD_SIZE differs"), HasSubstr("2 on rank 0"), HasSubstr("3 on rank 1")));
  }
}

// The other ranks keep waiting for the missing rank and report that rank.
TEST(BadStart, AnImpossibleRankSaysWhatItIs) {
  Job job({.world_size = 3,
           .variables = {{"UNISONO_STALL_SECONDS", "0.3"}, {"UNISONO_TIMEOUT_SECONDS", "2"}}});
  for (const int rank : {0, 1, 3}) {
    job.start(rank);
  }
  const std::vector<ProcessResult> results = job.processes().finish(kAtOnce);
  EXPECT_THAT(results[2].err, HasSubstr("RANK=3 is not below WORLD_SIZE=3"));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(results[static_cast<std::size_t>(rank)].exit_code, 1);
    EXPECT_THAT(results[static_cast<std::size_t>(rank)].err,
                HasSubstr("for rank 2 (2 of 3 joined)"));
  }
}

TEST(BadStart, AWrongSecretIsRefusedAndDoesNoHarm) {
  Job job(
      {.world_size = 3, .nodes = {"a", "a", "b"}, .variables = {{"UNISONO_TIMEOUT_SECONDS", "3"}}});
  job.start(0);
  job.start(1);
  job.start(2, {{"UNISONO_SECRET", "guessed"}});
  const std::vector<ProcessResult> results = job.processes().finish();
  expect_one_message(results[2]);
  EXPECT_THAT(results[2].err, HasSubstr("secret"));
  EXPECT_THAT(results[2].err, Not(HasSubstr("guessed")));
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_EQ(results[rank].exit_code, 1);
    EXPECT_THAT(
        results[rank].err,
        AllOf(
            HasSubstr(
                "for rank 2 (2 of 3 joined); the store has rejected a connection from 127.0.0.1:"),
            HasSubstr("did not authenticate with the job's secret")));
  }
}

TEST(BadStart, TlsOnSomeRanksOnlyIsSaidOnBothSides) {
  for (const int with_tls : {0, 1}) {
    Job job({.world_size = 2, .variables = {{"UNISONO_SECRET", "s"}}});
    job.start(0, {{"UNISONO_TLS", with_tls == 0 ? "on" : "off"}});
    job.start(1, {{"UNISONO_TLS", with_tls == 1 ? "on" : "off"}});
    EXPECT_TRUE(job.processes().wait_for_output(0, "UNISONO_TLS"));
    EXPECT_TRUE(job.processes().wait_for_output(1, "UNISONO_TLS"));
    job.processes().send_signal(0, SIGKILL);
    const std::vector<ProcessResult> results = job.processes().finish(kAtOnce);
    expect_one_message(results[1]);
  }
}

// The first process that receives a different world size reports the mismatch to the sender.
TEST(BadStart, UnequalWorldSizesAtAMulticastGroupAreNamedToBoth) {
  Processes processes;
  const ReservedPort port;
  for (const std::string world_size : {"2", "3"}) {
    const std::size_t process =
        processes.start({UNISONO_RANK_PROGRAM,
                         "hello",
                         "tcp://239.213.77.9:" + port.text() + "?world_size=" + world_size},
                        {{"UNISONO_STALL_SECONDS", "0.3"}, {"UNISONO_TIMEOUT_SECONDS", "20"}});
    // The second process starts after the first process has waited for a while.
    if (process == 0 && !processes.wait_for_output(0, "1 of 2 processes are here")) {
      return;
    }
  }
  const std::vector<ProcessResult> results = processes.finish(kAtOnce);
  const auto of = [&](std::size_t i, const std::string& text) {
    return text + "pid " + std::to_string(processes.pid(i)) + " on ";
  };
  EXPECT_THAT(results[0].err,
              AllOf(HasSubstr(of(0, "the world size is 2 here (")), HasSubstr(of(1, "3 at "))));
  EXPECT_THAT(results[1].err,
              AllOf(HasSubstr(of(1, "the world size is 3 here (")), HasSubstr(of(0, "2 at "))));
}

// Rank 1 neither has the wrong setting nor rejects the connection.
TEST(BadStart, TlsOnOneRankOnlyIsSaidToAll) {
  Job job(
      {.world_size = 3, .variables = {{"UNISONO_SECRET", "s"}, {"UNISONO_TIMEOUT_SECONDS", "3"}}});
  job.start(0);
  job.start(1);
  job.start(2, {{"UNISONO_TLS", "on"}});
  const std::vector<ProcessResult> results = job.processes().finish(kAtOnce);
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(
        results[rank].err,
        AllOf(
            HasSubstr(
                "for rank 2 (2 of 3 joined); the store has rejected a connection from 127.0.0.1:"),
            HasSubstr("it uses TLS, which this store does not")));
  }
}

TEST(BadStart, WhoGuessedTheSecretMayComeAgainWithTheRightOne) {
  Job job({.world_size = 2, .nodes = {"a", "b"}});
  job.start(0);
  job.start(1, {{"UNISONO_SECRET", "guessed"}});
  if (!job.processes().wait_for_output(1, "rank_program: ")) {
    return;
  }
  job.start(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_EQ(results[0].exit_code, 0) << results[0].err;
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_EQ(results[2].exit_code, 0) << results[2].err;
}

TEST(MisspelledSetting, IsNamedOnceWithTheRightOne) {
  const auto results = run_job(
      {.world_size = 2, .variables = {{"UNISONO_LGO", "debug"}, {"UNISONO_SOMETHING_ELSE", "1"}}});
  EXPECT_THAT(
      results[0].err,
      HasSubstr("UNISONO_LGO is not a setting of Unisono, and has no effect; is UNISONO_LOG "
                "meant?\n"));
  EXPECT_THAT(results[0].err + results[1].err, ::testing::Not(HasSubstr("SOMETHING_ELSE")));
  EXPECT_THAT(results[1].err, ::testing::Not(HasSubstr("UNISONO_LGO")));
}

}  // namespace
}  // namespace unisono::test
