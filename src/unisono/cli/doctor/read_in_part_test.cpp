#include "unisono/cli/doctor/read_in_part.h"

#include <map>
#include <string>

#include <gtest/gtest.h>

#include "unisono/rendezvous/launch_info.h"

#include "support/ranks.h"

namespace unisono::cli::doctor {
namespace {

using rendezvous::LaunchInfo;
using Variables = std::map<std::string, std::string>;

LaunchInfo read(const Variables& changes) {
  Variables variables = changes;
  variables.merge(Variables{{"RANK", "1"},
                            {"WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "10.0.0.1"},
                            {"MASTER_PORT", "29511"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  return read_in_part(test::fake_environment(variables));
}

TEST(ReadInPart, WrongFiguresHideNoPlace) {
  for (const Variables& wrong : {Variables{{"RANK", "x"}},
                                 Variables{{"WORLD_SIZE", "x"}},
                                 Variables{{"RANK", "5"}},
                                 Variables{{"RANK", "-1"}, {"LOCAL_RANK", "y"}}}) {
    const LaunchInfo found = read(wrong);
    EXPECT_EQ(found.rank, -1);
    EXPECT_EQ(found.world_size, 1);
    EXPECT_EQ(found.master_addr, "10.0.0.1");
    EXPECT_EQ(found.master_port, 29511);
    EXPECT_TRUE(found.uses_agent_store);
  }
}

TEST(ReadInPart, AWrongPlaceHidesNoFigures) {
  const LaunchInfo without_address = read({{"MASTER_ADDR", ""}, {"LOCAL_RANK", "y"}});
  EXPECT_EQ(without_address.rank, 1);
  EXPECT_EQ(without_address.world_size, 4);
  EXPECT_EQ(without_address.master_addr, "");
  EXPECT_EQ(without_address.master_port, 29511);
  const LaunchInfo without_port = read({{"MASTER_PORT", "65536"}, {"WORLD_SIZE", "4x"}});
  EXPECT_EQ(without_port.rank, -1);
  EXPECT_EQ(without_port.master_addr, "10.0.0.1");
  EXPECT_EQ(without_port.master_port, 0);
}

TEST(ReadInPart, NothingGoodIsNothingRead) {
  const LaunchInfo found =
      read({{"RANK", ""}, {"WORLD_SIZE", ""}, {"MASTER_ADDR", "a b"}, {"MASTER_PORT", "p"}});
  EXPECT_EQ(found.rank, -1);
  EXPECT_EQ(found.world_size, 1);
  EXPECT_EQ(found.master_addr, "");
  EXPECT_EQ(found.master_port, 0);
}

TEST(ReadInPart, ALaunchersVariablesAreReadInPart) {
  const Variables slurm{{"SLURM_JOB_ID", "17"},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEP_NODELIST", "n[1-2]"},
                        {"SLURM_NTASKS", "4"},
                        {"SLURM_PROCID", "two"},
                        {"SLURM_LOCALID", "0"}};
  const LaunchInfo found = read_in_part(test::fake_environment(slurm));
  EXPECT_EQ(found.rank, -1);
  EXPECT_EQ(found.master_addr, "n1");
  EXPECT_GT(found.master_port, 61000);
}

}  // namespace
}  // namespace unisono::cli::doctor
