// Processes that meet through a file.
#include <csignal>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/spawn.h"
#include "support/temporary_folder.h"

namespace unisono::test {
namespace {

using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class FileMethod : public ::testing::Test {
 protected:
  void start(Processes& processes, int world_size) const {
    (void)processes.start(
        {UNISONO_RANK_PROGRAM,
         "hello",
         "file://" + folder_.path() + "/job?world_size=" + std::to_string(world_size)},
        {{"UNISONO_STALL_SECONDS", "0.1"}});
  }

  // Expects that three processes meet and that no file remains.
  void expect_three_to_meet() const {
    Processes processes;
    for (int i = 0; i < 3; ++i) {
      start(processes, 3);
    }
    std::vector<std::string> outputs;
    for (const ProcessResult& result : processes.finish()) {
      EXPECT_EQ(result.exit_code, 0) << result.err;
      outputs.push_back(result.out);
    }
    EXPECT_THAT(outputs,
                UnorderedElementsAre("(0,3) local (0,3) all_reduce(ones)=3\n",
                                     "(1,3) local (1,3) all_reduce(ones)=3\n",
                                     "(2,3) local (2,3) all_reduce(ones)=3\n"));
    EXPECT_THAT(folder_.names(), IsEmpty());
  }

  TemporaryFolder folder_;
};

TEST_F(FileMethod, OneJobAfterTheOther) {
  expect_three_to_meet();
  expect_three_to_meet();
}

TEST_F(FileMethod, TheFileOfAKilledJobDoesNoHarm) {
  for (const int world_size : {3, 4}) {
    Processes killed;
    start(killed, world_size);
    start(killed, world_size);
    ASSERT_TRUE(killed.wait_for_output(0, "2 of " + std::to_string(world_size)));
    killed.send_signal(0, SIGKILL);
    killed.send_signal(1, SIGKILL);
    for (const ProcessResult& result : killed.finish()) {
      EXPECT_EQ(result.exit_code, 128 + SIGKILL);
    }
    EXPECT_THAT(folder_.names(), UnorderedElementsAre("job"));
    expect_three_to_meet();
  }
}

TEST_F(FileMethod, AProcessThatEndsWhileTheOthersWaitCanBeReplaced) {
  Processes processes;
  start(processes, 3);
  start(processes, 3);
  ASSERT_TRUE(processes.wait_for_output(0, "2 of 3"));
  processes.send_signal(1, SIGKILL);
  ASSERT_TRUE(processes.wait_for_output(0, "(which has ended)"));
  start(processes, 3);
  start(processes, 3);
  const std::vector<ProcessResult> results = processes.finish();
  EXPECT_EQ(results[1].exit_code, 128 + SIGKILL);
  for (const std::size_t other : {0U, 2U, 3U}) {
    EXPECT_EQ(results[other].exit_code, 0) << results[other].err;
  }
  EXPECT_THAT(folder_.names(), IsEmpty());
}

}  // namespace
}  // namespace unisono::test
