// Reports about a rank that delays others: its current operation and the stacks of its threads.
#include <signal.h>

#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/job.h"

namespace unisono::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Wait {
  std::string name;
  std::string how;
  std::vector<std::string> nodes;

  friend std::ostream& operator<<(std::ostream& out, const Wait& wait) { return out << wait.name; }
};

// ThreadSanitizer delays a signal while a thread waits.
#ifdef __SANITIZE_THREAD__
constexpr bool kDelaysSignals = true;
#else
constexpr bool kDelaysSignals = false;
#endif

// Operations that rank 1 has finished before its stall.
constexpr const char* kProgress =
    "has finished all_reduce #2 (f32[8], sum) and called no collective operation of this group "
    "since";

class Stalled : public ::testing::TestWithParam<Wait> {
 protected:
  [[nodiscard]] static JobSetup setup(const std::string& log_level) {
    return {.world_size = 2,
            .mode = {GetParam().how},
            .nodes = GetParam().nodes,
            .variables = {{"UNISONO_STALL_SECONDS", "0.3"}, {"UNISONO_LOG", log_level}}};
  }

  [[nodiscard]] static bool is_on_one_node() { return GetParam().nodes.empty(); }

  // Lets rank 1 continue and expects success.
  static std::vector<ProcessResult> finish(Job& job) {
    job.processes().close_stdin(1);
    const std::vector<ProcessResult> results = job.processes().finish();
    for (const ProcessResult& result : results) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    return results;
  }
};

TEST_P(Stalled, TheReportSaysWhatTheLateRankDoes) {
  Job job(setup("info"));
  job.start_all();
  (void)job.processes().wait_for_output(0, kProgress);
  const std::vector<ProcessResult> results = finish(job);
  const std::string late = "rank 1 (pid " + std::to_string(job.processes().pid(1)) + " on ";
  EXPECT_THAT(results[0].err, ContainsRegex("waits since [0-9]+[.][0-9] s for "));
  EXPECT_THAT(results[0].err, HasSubstr(" s for " + late));
  EXPECT_THAT(results[0].err, HasSubstr(is_on_one_node() ? ", sleeping), which " : " is running "));
  // On a slow machine rank 1 may report that rank 0 came late to the rendezvous.
  EXPECT_THAT(results[1].err, Not(HasSubstr("waits since")));
}

TEST_P(Stalled, InDebugTheLateRankShowsItsStack) {
  Job job(setup("debug"));
  job.start_all();
  const bool has_stack = !kDelaysSignals;
  (void)job.processes().wait_for_output(
      1, has_stack ? "sit_in_the_program" : "none, as it does not take signals now");
  const std::vector<ProcessResult> results = finish(job);
  EXPECT_THAT(results[0].err, HasSubstr(kProgress));
  EXPECT_THAT(results[1].err,
              ContainsRegex("\\[unisono rank 1\\] debug: stack of thread " +
                            std::to_string(job.processes().pid(1)) +
                            " \\(stall_program\\), requested by rank 0:"));
  EXPECT_THAT(
      results[1].err,
      ContainsRegex(has_stack ? "\n  #[1-9] sit_in_the_program\\(\\) in .*stall_program" : ""));
  // The rank was in a system call, which continued after the signal.
  EXPECT_THAT(results[1].out, HasSubstr("0 bytes\n"));
}

TEST_P(Stalled, AStoppedRankHasNoStack) {
  Job job(setup("debug"));
  job.start_all();
  if (!job.processes().wait_for_output(1, "sitting\n")) {
    return;
  }
  job.processes().send_signal(1, SIGSTOP);
  (void)job.processes().wait_for_output(
      0, is_on_one_node() ? "is stopped, and so can't show its stack" : "does not answer within");
  job.processes().send_signal(1, SIGCONT);
  const std::vector<ProcessResult> results = finish(job);
  if (is_on_one_node()) {
    EXPECT_THAT(results[0].err, HasSubstr(std::string(", stopped), which ") + kProgress));
  } else {
    EXPECT_THAT(results[0].err, HasSubstr("its process may be stopped or gone"));
  }
}

TEST(StoppedOnAnotherNode, TimeoutsTellWhatItSaidLast) {
  Job job({.world_size = 2,
           .mode = {"all_reduce"},
           .nodes = {"a", "b"},
           .variables = {{"UNISONO_STALL_SECONDS", "0.3"}, {"UNISONO_TIMEOUT_SECONDS", "2"}}});
  job.start_all();
  if (!job.processes().wait_for_output(0, kProgress)) {
    return;
  }
  job.processes().send_signal(1, SIGSTOP);
  EXPECT_TRUE(job.processes().wait_for_output(0, "timed out waiting for"));
  job.processes().send_signal(1, SIGCONT);
  job.processes().close_stdin(1);
  const std::vector<ProcessResult> results = job.processes().finish();
  EXPECT_THAT(
      results[0].err,
      ContainsRegex("timed out waiting for rank 1 [(]pid [^)]*[)], which does not answer "
                    "within 0.1 s: [^;]*; as last reported, it has finished all_reduce #2"));
}

// A rank waits for a message that no rank sends, while the other ranks wait for that rank.
TEST(Deadlocked, ReportsNameTheReceiveAndWhatCameInstead) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{}, std::vector<std::string>{"a", "b", "c"}}) {
    const std::vector<ProcessResult> results = run_job(
        {.world_size = 3,
         .mode = {"deadlock"},
         .nodes = nodes,
         .variables = {{"UNISONO_STALL_SECONDS", "0.3"}, {"UNISONO_TIMEOUT_SECONDS", "2"}}});
    EXPECT_THAT(
        results[1].err + results[2].err,
        // The rank may not sleep yet.
        ContainsRegex(
            std::string(nodes.empty() ? "(sleeping|running)[)], which " : "is running and ") +
            "waits in recv [(]f32[[]8[]], from rank 1, tag 3[)], and has finished "
            "all_reduce #2"));
    EXPECT_THAT(results[0].err,
                ContainsRegex(
                    "waits since .*; it has sent messages with tag 4, which no receive matches\n"));
  }
}

// Each rank waits in a group of its own for the next rank. A rank ends as soon as the deadlock is
// reported.
TEST(Deadlock, IsAnErrorOnAllRanksThatNamesIt) {
  const std::vector<std::vector<std::string>> worlds{{"a", "a"}, {"a", "b"}, {"a", "a", "b"}};
  for (const std::vector<std::string>& nodes : worlds) {
    const auto results = run_job({.world_size = static_cast<int>(nodes.size()),
                                  .mode = {"ring"},
                                  .nodes = nodes,
                                  .variables = {{"UNISONO_STALL_SECONDS", "0.3"}}});
    const std::string second = nodes.size() == 2
                                   ? "group 1.1 [(]ranks 1, 0[)] for rank 0; "
                                   : "group 1.1 [(]ranks 1, 2[)] for rank 2, which waits in "
                                     "all_reduce #1 .* of group 2.1 [(]ranks 2, 0[)] for rank 0; ";
    for (const ProcessResult& result : results) {
      EXPECT_THAT(result.err,
                  ContainsRegex("stall_program: .*ranks wait for each other: rank 0 waits in "
                                "all_reduce #1 [(]f32.8., sum[)] of group 0.1 [(]ranks 0, 1[)] for "
                                "rank 1, which waits in all_reduce #1 .* of " +
                                second));
    }
  }
}

// The timeout ends the operation before the second search for a deadlock.
TEST(Crossed, BothReportsAndBothTimeoutsNameTheOthersCallAndGroup) {
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{}, std::vector<std::string>{"a", "b"}}) {
    Job job({.world_size = 2,
             .mode = {"crossed"},
             .nodes = nodes,
             .variables = {{"UNISONO_STALL_SECONDS", "2"}, {"UNISONO_TIMEOUT_SECONDS", "3"}}});
    job.start_all();
    EXPECT_TRUE(job.processes().wait_for_output(0, "timed out waiting for"));
    EXPECT_TRUE(job.processes().wait_for_output(1, "timed out waiting for"));
    job.processes().close_stdin(0);
    job.processes().close_stdin(1);
    const std::vector<ProcessResult> results = job.processes().finish();
    for (const std::size_t rank : {0U, 1U}) {
      const std::string late = "rank " + std::to_string(1 - rank) + " [(]pid [^)]*[)]";
      const std::string call = " in all_reduce #1 [(]f32.8., sum[)] of group 0[.]" +
                               std::to_string(2 - rank) + " [(]ranks 0, 1[)]";
      EXPECT_THAT(results[rank].err,
                  ContainsRegex(late + (nodes.empty() ? "" : " is running and") + " is" + call));
      // The other rank may have aborted a moment before.
      EXPECT_THAT(results[rank].out,
                  ContainsRegex("timed out waiting for " + late + ", which .*(is|aborted)" + call +
                                ", and has called no collective operation of this group yet"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Waits,
                         Stalled,
                         ::testing::Values(Wait{"Operation", "all_reduce", {}},
                                           Wait{"Message", "message", {}},
                                           Wait{"OperationBetweenNodes", "all_reduce", {"a", "b"}},
                                           Wait{"MessageBetweenNodes", "message", {"a", "b"}}),
                         [](const auto& case_info) { return case_info.param.name; });

}  // namespace
}  // namespace unisono::test
