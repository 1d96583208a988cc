#include "unisono/cli/doctor/examine_processor.h"

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::fake_environment;
using Variables = std::map<std::string, std::string>;
using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Place ranks(int n) {
  return {.is_in_job = true, .local_world_size = n};
}

TEST(ExamineCores, MoreRanksThanCoresIsAWarning) {
  const TemporaryFolder root;
  const Cores cores{.usable = 2, .online = 8};
  const Finding enough = examine_cores(fake_environment({}), ranks(2), cores, root.path())[0];
  EXPECT_EQ(enough.state, State::kOk);
  EXPECT_EQ(enough.text, "2 of 8 may be used");
  // They may be pinned to others each.
  const Finding some = examine_cores(fake_environment({}), ranks(3), cores, root.path())[0];
  EXPECT_EQ(some.state, State::kInfo);
  EXPECT_THAT(some.text, HasSubstr("2 of 8 may be used by this rank, and 3 are on its node"));
  const Finding few = examine_cores(fake_environment({}), ranks(9), cores, root.path())[0];
  EXPECT_EQ(few.state, State::kWarning);
  EXPECT_THAT(few.text, HasSubstr("2 of 8 may be used by 9 ranks"));
}

TEST(ExamineCores, AQuotaBelowTheRanksIsAWarning) {
  const TemporaryFolder root;
  const Cores cores{.usable = 1, .online = 8};
  (void)root.write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  const Finding half = examine_cores(fake_environment({}), ranks(1), cores, root.path())[0];
  EXPECT_EQ(half.state, State::kWarning);
  EXPECT_THAT(half.text, HasSubstr("quota is 0.5"));
  (void)root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(examine_cores(fake_environment({}), ranks(1), cores, root.path())[0].state, State::kOk);
  (void)root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "75000\n");
  (void)root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_THAT(examine_cores(fake_environment({}), ranks(1), cores, root.path())[0].text,
              HasSubstr("quota is 0.75"));
}

TEST(ExamineThreads, MustFitTheCores) {
  const TemporaryFolder root;
  const Cores cores{.usable = 8, .online = 8};
  const auto threads = [&](const Variables& variables, int n_ranks) {
    return examine_cores(fake_environment(variables), ranks(n_ranks), cores, root.path())[1];
  };
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "4"}}, 2).state, State::kOk);
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "4"}}, 3).state, State::kWarning);
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "4"}}, 3).advice, "OMP_NUM_THREADS=2");
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "4,1"}}, 2).state, State::kOk);
  EXPECT_EQ(threads({{"OMP_NUM_THREADS", "many"}}, 2).state, State::kWarning);
  EXPECT_EQ(threads({}, 2).state, State::kWarning);
  EXPECT_EQ(threads({}, 1).state, State::kInfo);
}

// As mpirun pins them.
TEST(ExamineThreads, AreInOrderWhereEachRankHasOneCore) {
  const TemporaryFolder root;
  const Cores cores{.usable = 1, .online = 8};
  const auto state = [&](const Variables& variables) {
    return examine_cores(fake_environment(variables), ranks(2), cores, root.path())[1].state;
  };
  EXPECT_EQ(state({}), State::kInfo);
  EXPECT_EQ(state({{"OMP_NUM_THREADS", "1"}}), State::kOk);
  EXPECT_EQ(state({{"OMP_NUM_THREADS", "2"}}), State::kWarning);
}

TEST(ExamineNuma, ListsTheNodes) {
  const TemporaryFolder root;
  EXPECT_THAT(examine_numa(root.path()), IsEmpty());
  (void)root.write("sys/devices/system/node/node0/cpulist", "0-3\n");
  (void)root.write("sys/devices/system/node/node1/cpulist", "4-7\n");
  (void)root.write("sys/devices/system/node/nodes/cpulist", "0-7\n");
  EXPECT_EQ(examine_numa(root.path()).at(0).text, "node0: cores 0-3; node1: cores 4-7");
}

}  // namespace
}  // namespace unisono::cli::doctor
