#include "unisono/launch/binding/bind_ranks.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::launch {
namespace {

using ::testing::HasSubstr;

CoreTopology equal_cores(int n_cores, int n_threads = 1) {
  CoreTopology topology;
  for (int i = 0; i < n_cores; ++i) {
    topology.cores.push_back({});
    for (int thread = 0; thread < n_threads; ++thread) {
      topology.cores.back().processors.push_back(i + (thread * n_cores));
    }
  }
  return topology;
}

// The conditions of a start and the resulting default.
struct Start {
  CoreTopology topology = equal_cores(4, 2);
  int n_ranks = 2;
  int n_usable = 8;
  std::optional<int> n_threads = std::nullopt;
  std::string program = "/usr/bin/python3";
  std::map<std::string, std::string> variables = {};

  [[nodiscard]] std::string reason() const {
    const Environment environment = [this](const char* name) -> std::optional<std::string> {
      const auto variable = variables.find(name);
      return variable == variables.end() ? std::nullopt : std::optional(variable->second);
    };
    return reason_against_binding(topology,
                                  share_cores(topology, n_ranks, BindTo::kCore).processors,
                                  n_usable,
                                  n_threads,
                                  program,
                                  environment);
  }
};

TEST(BindingByDefault, IsDoneWhenEachRankGetsWholeCores) {
  EXPECT_EQ(Start{}.reason(), "");
  EXPECT_EQ(Start{.n_ranks = 4}.reason(), "");
  EXPECT_EQ((Start{.n_ranks = 2, .variables = {{"OMP_NUM_THREADS", "4"}}}.reason()), "");
}

TEST(BindingByDefault, IsNotDoneForMoreRanksThanCores) {
  EXPECT_EQ(Start{.n_ranks = 5}.reason(), "5 ranks are more than 4 cores");
  EXPECT_EQ((Start{.n_ranks = 2, .n_usable = 1}.reason()), "2 ranks are more than 1 core");
}

TEST(BindingByDefault, IsNotDoneWhereTheUserBindsByOtherMeans) {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    EXPECT_EQ((Start{.variables = {{name, "close"}}}.reason()),
              std::string(name) + " binds threads");
  }
  for (const char* program : {"/usr/bin/numactl", "taskset", "/opt/bin/hwloc-bind"}) {
    EXPECT_THAT(Start{.program = program}.reason(), HasSubstr("binds processes itself"));
  }
  EXPECT_EQ(Start{.program = "/opt/numactl/train"}.reason(), "");
}

TEST(BindingByDefault, IsNotDoneWhereTheUserWantsMoreThreadsThanAShareHas) {
  EXPECT_EQ((Start{.n_ranks = 4, .variables = {{"OMP_NUM_THREADS", "3,1"}}}.reason()),
            "OMP_NUM_THREADS=3 is more than the 2 processors of the smallest share");
  EXPECT_EQ((Start{.n_ranks = 4, .variables = {{"OMP_NUM_THREADS", "many"}}}.reason()), "");
}

TEST(BindingByDefault, IsNotDoneWhereTheLaunchersThreadsDoNotFitTheSmallestShare) {
  CoreTopology uneven = equal_cores(8);
  for (int i = 3; i < 8; ++i) {
    uneven.cores[static_cast<std::size_t>(i)].numa_node = 1;
  }
  EXPECT_EQ((Start{.topology = uneven, .n_ranks = 2, .n_threads = 4}.reason()),
            "OMP_NUM_THREADS=4 is more than the 3 processors of the smallest share");
  EXPECT_EQ((Start{.topology = uneven, .n_ranks = 2, .n_threads = 3}.reason()), "");
}

TEST(BindingByDefault, IsNotDoneWhereCoresWouldStayUnused) {
  CoreTopology lopsided = equal_cores(8);
  lopsided.cores.back().numa_node = 1;
  EXPECT_EQ((Start{.topology = lopsided, .n_ranks = 2}.reason()),
            "equal shares for 2 ranks would leave cores unused");
}

TEST(CoreMarks, ShowOtherJobsTheFirstCoreThatIsUsed) {
  // No machine has these processors, so no other job has marked the processors.
  CoreTopology cores;
  cores.cores = {{{900001, 900003}, 0, 0}, {{900002, 900004}, 0, 0}};
  CoreTopology second;
  second.cores = {{{900000}, 0, 0}, {{900002, 900004}, 0, 0}};
  {
    const CoreMarks marks(cores);
    EXPECT_EQ(marks.first_used(), -1);
    EXPECT_EQ(CoreMarks(second).first_used(), 900002);
    EXPECT_EQ(CoreMarks(cores).first_used(), 900001);
  }
  EXPECT_EQ(CoreMarks(second).first_used(), -1);
}

TEST(BindingReport, HasALineForEachRankAndTheCause) {
  const BindingReport report{.host = "alpha",
                             .ranks = {{4, {0}}, {5, {1, 2, 3, 8}}},
                             .threads = "OMP_NUM_THREADS=1 (set by the launcher)",
                             .cause = "not bound: another job is using core 0"};
  EXPECT_THAT(to_text(report),
              ::testing::MatchesRegex(
                  "rank 4 on alpha: core 0, NUMA node [0-9]+, OMP_NUM_THREADS=1 \\(set by the "
                  "launcher\\)\nrank 5 on alpha: cores 1-3,8, NUMA nodes? [-,0-9]+, "
                  "OMP_NUM_THREADS=1 \\(set by the launcher\\)\nranks on alpha are not bound: "
                  "another job is using core 0"));
}

}  // namespace
}  // namespace unisono::launch
