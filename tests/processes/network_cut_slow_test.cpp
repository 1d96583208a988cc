// A network that is cut is an error. A rank that is late for the same time is not.
#include <chrono>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/cabled_namespaces.h"
#include "processes/cabled_test.h"
#include "processes/job.h"
#include "processes/spawn.h"

namespace unisono::test {
namespace {

using ::testing::ContainsRegex;

// A connection that is silent for 20 s is closed as lost. An operation may take half an hour.
constexpr std::chrono::seconds kTimeToNotice{60};

struct Wait {
  std::string name;
  std::string program;
  std::vector<std::string> mode;

  friend std::ostream& operator<<(std::ostream& out, const Wait& wait) { return out << wait.name; }
};

class NetworkCut : public CabledTest, public ::testing::WithParamInterface<Wait> {};

// Rank 0 has no data in transit when the network is cut. Rank 1 sends only after that.
TEST_P(NetworkCut, IsNamedByWhoWaitsAndByWhoSends) {
  Processes processes(kTimeToNotice);
  start_ranks(processes, GetParam().program, GetParam().mode, {{"UNISONO_STALL_SECONDS", "0.2"}});
  ASSERT_TRUE(processes.wait_for_output(0, " waits since 0.2 s for rank 1 (pid "));
  ASSERT_EQ(CabledNamespaces::cut(), "");
  processes.close_stdin(1);
  const std::vector<ProcessResult> results = processes.finish();
  for (int rank = 0; rank < 2; ++rank) {
    const ProcessResult& result = results[static_cast<std::size_t>(rank)];
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err,
                ContainsRegex(
                    "rank " + std::to_string(1 - rank) + " \\(pid [0-9]+ on [^)]*\\) at " +
                    CabledNamespaces::address(1 - rank) + ":[0-9]+ is gone: Connection timed out"));
  }
}

const std::string kRank = UNISONO_RANK_PROGRAM;
const std::string kMessages = UNISONO_MESSAGE_PROGRAM;

INSTANTIATE_TEST_SUITE_P(Waits,
                         NetworkCut,
                         ::testing::Values(Wait{"ForASum", kRank, {"late_sum"}},
                                           Wait{"ForAMessage", kMessages, {"late_message"}}),
                         [](const auto& case_info) { return case_info.param.name; });

// The late rank has no room for incoming data, and its kernel reports a zero window.
TEST(LateRank, IsWaitedForLongerThanASilentNetwork) {
  Job job({.mode = {"late_gather"},
           .nodes = {"a", "b"},
           .variables = {{"UNISONO_STALL_SECONDS", "13"}}});
  job.start_all();
  EXPECT_TRUE(job.processes().wait_for_output(0, " waits since 26 s for rank 1 (pid "));
  job.processes().close_stdin(1);
  for (const ProcessResult& result : job.processes().finish()) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, "done\n");
  }
}

}  // namespace
}  // namespace unisono::test
