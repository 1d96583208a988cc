#include "unisono/cli/doctor/examine_launcher.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

#include "support/ranks.h"

namespace unisono::cli::doctor {
namespace {

using test::fake_environment;
using Variables = std::map<std::string, std::string>;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Variables torchrun(const Variables& changes = {}) {
  Variables variables = changes;
  variables.merge(Variables{{"RANK", "1"},
                            {"WORLD_SIZE", "4"},
                            {"LOCAL_RANK", "1"},
                            {"LOCAL_WORLD_SIZE", "2"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29511"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  return variables;
}

Variables slurm() {
  return {{"SLURM_JOB_ID", "17"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NODELIST", "n[1-2]"},
          {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_PROCID", "2"},
          {"SLURM_LOCALID", "0"}};
}

auto has(State state, const char* text) {
  return Contains(AllOf(Field(&Finding::state, state), Field(&Finding::text, HasSubstr(text))));
}

TEST(ExamineLauncher, NoLauncherIsNoProblem) {
  const LauncherExamination found = examine_launcher(fake_environment({}));
  EXPECT_FALSE(found.place.is_in_job);
  EXPECT_FALSE(found.place.has_peers());
  EXPECT_THAT(found.findings, ElementsAre(Field(&Finding::state, State::kInfo)));
}

TEST(ExamineLauncher, SaysRankAndWhereTheRanksMeet) {
  const LauncherExamination found = examine_launcher(fake_environment(torchrun()));
  EXPECT_TRUE(found.place.has_peers());
  EXPECT_EQ(found.place.local_world_size, 2);
  EXPECT_THAT(found.findings,
              has(State::kOk,
                  "started by unisono run: rank 1 of 4, local rank 1; the ranks meet "
                  "at 10.0.0.1:29511, which the launcher serves"));
}

TEST(ExamineLauncher, NamesTheLauncherThatItRecognized) {
  const LauncherExamination found = examine_launcher(fake_environment(slurm()));
  EXPECT_TRUE(found.place.has_peers());
  EXPECT_EQ(found.place.local_world_size, 2);
  EXPECT_THAT(found.findings, has(State::kOk, "started by Slurm: rank 2 of 4"));
  EXPECT_THAT(found.findings, has(State::kInfo, "4 tasks on n1, n2"));
  EXPECT_THAT(found.findings,
              Contains(Field(&Finding::advice, HasSubstr("WORLD_SIZE=4 RANK=2 LOCAL_RANK=0"))));
}

TEST(ExamineLauncher, RanksOfSeveralNodesMeetWhereRankZeroTells) {
  const LauncherExamination found = examine_launcher(fake_environment({{"PMI_RANK", "2"},
                                                                       {"PMI_SIZE", "4"},
                                                                       {"PMI_FD", "6"},
                                                                       {"MPI_LOCALRANKID", "0"},
                                                                       {"MPI_LOCALNRANKS", "2"}}));
  EXPECT_THAT(found.findings,
              ElementsAre(Field(&Finding::text, HasSubstr("in the launcher's key space (PMI)"))));
  EXPECT_EQ(found.place.local_world_size, 2);
}

TEST(ExamineLauncher, AScriptOfSlurmIsToldToUseSrun) {
  const LauncherExamination found = examine_launcher(
      fake_environment({{"SLURM_JOB_ID", "17"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}));
  EXPECT_FALSE(found.place.is_in_job);
  EXPECT_THAT(found.findings, has(State::kInfo, "the shell of Slurm job 17"));
  EXPECT_THAT(found.findings, Contains(Field(&Finding::advice, HasSubstr("srun"))));
}

TEST(ExamineLauncher, WrongVariablesAreAProblemWithWhatToDo) {
  const LauncherExamination found =
      examine_launcher(fake_environment(torchrun({{"RANK", "7"}, {"MASTER_PORT", "seven"}})));
  EXPECT_TRUE(found.place.is_in_job);
  EXPECT_FALSE(found.place.has_peers());
  ASSERT_THAT(found.findings, SizeIs(1));
  EXPECT_EQ(found.findings[0].state, State::kProblem);
  EXPECT_THAT(found.findings[0].text,
              AllOf(HasSubstr("RANK=7 is not below WORLD_SIZE=4"), HasSubstr("seven")));
  EXPECT_THAT(found.findings[0].advice, HasSubstr("unisono run -n N program"));
  ASSERT_TRUE(found.place.launch_info.has_value());
  EXPECT_EQ(found.place.launch_info->master_addr, "10.0.0.1");
}

TEST(ExamineLauncher, LocalRanksMustFit) {
  EXPECT_THAT(examine_launcher(fake_environment(torchrun({{"LOCAL_RANK", "2"}}))).findings,
              has(State::kProblem, "LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"));
  EXPECT_THAT(examine_launcher(fake_environment(torchrun({{"LOCAL_WORLD_SIZE", "5"}}))).findings,
              has(State::kProblem, "LOCAL_WORLD_SIZE=5 is more than WORLD_SIZE=4"));
}

TEST(ExamineLauncher, ListsVariablesWithTheirMeaning) {
  EXPECT_THAT(list_launcher_variables(fake_environment({{"PATH", "/bin"}, {"RANK", "1"}})),
              ElementsAre(Field(&Finding::text, HasSubstr("RANK=1: this process's rank"))));
}

TEST(ExamineLauncher, SaysWhichLauncherSetAVariable) {
  const auto describe = [](const Variables& changes) {
    std::string text;
    for (const Finding& finding : list_launcher_variables(fake_environment(torchrun(changes)))) {
      text += finding.text + "\n";
    }
    return text;
  };
  const Variables group{{"GROUP_RANK", "0"}, {"SLURM_PROCID", "0"}};
  const std::string ours = describe(group);
  EXPECT_THAT(ours, HasSubstr("GROUP_RANK=0: number of the node; set by unisono run\n"));
  EXPECT_THAT(ours, HasSubstr("RANK=1: this process's rank; set by unisono run\n"));
  EXPECT_THAT(ours, HasSubstr("set by srun"));
  EXPECT_THAT(describe({{"GROUP_RANK", "0"}, {"TORCHELASTIC_ERROR_FILE", "/tmp/error.json"}}),
              HasSubstr("GROUP_RANK=0: number of the node; set by torchrun\n"));
}

}  // namespace
}  // namespace unisono::cli::doctor
