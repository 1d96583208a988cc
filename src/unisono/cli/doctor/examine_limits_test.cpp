#include "unisono/cli/doctor/examine_limits.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;

Finding about(const std::string& topic,
              const MemoryCalls& calls,
              const TemporaryFolder& root,
              int world_size = 1) {
  for (const Finding& finding : examine_limits(calls, root.path(), world_size)) {
    if (finding.topic == topic) {
      return finding;
    }
  }
  return {.topic = "none", .text = ""};
}

TEST(ExamineLimits, ThisMachineLetsArenasBeMade) {
  EXPECT_EQ(call_memory().arena_error, "");
}

TEST(ExamineLimits, ArenasThatCannotBeMadeAreAProblem) {
  const TemporaryFolder root;
  MemoryCalls calls;
  EXPECT_EQ(about("shared memory", calls, root).state, State::kOk);
  calls.arena_error = "memfd_create: Operation not permitted";
  const Finding finding = about("shared memory", calls, root);
  EXPECT_EQ(finding.state, State::kProblem);
  EXPECT_EQ(finding.text, calls.arena_error);
}

TEST(ExamineLimits, ASmallDevShmIsAWarningForOthers) {
  const TemporaryFolder root;
  MemoryCalls calls;
  EXPECT_EQ(about("/dev/shm", calls, root).topic, "none");
  calls.shm_bytes = std::uint64_t{64} << 20;
  EXPECT_EQ(about("/dev/shm", calls, root).state, State::kWarning);
  calls.shm_bytes = std::uint64_t{4} << 30;
  EXPECT_EQ(about("/dev/shm", calls, root).state, State::kInfo);
}

TEST(ExamineLimits, ALimitOfAddressSpaceIsAWarning) {
  const TemporaryFolder root;
  MemoryCalls calls;
  EXPECT_EQ(about("address space", calls, root).topic, "none");
  calls.address_space.rlim_cur = rlim_t{1} << 30;
  const Finding finding = about("address space", calls, root);
  EXPECT_EQ(finding.state, State::kWarning);
  EXPECT_THAT(finding.text, HasSubstr("limited to 1 GiB"));
}

TEST(ExamineLimits, LockedMemoryMattersWhereThereIsAFabric) {
  const TemporaryFolder root;
  MemoryCalls calls;
  calls.locked.rlim_cur = rlim_t{8} << 20;
  EXPECT_EQ(about("locked memory", calls, root).state, State::kInfo);
  (void)root.write("sys/class/infiniband/mlx5_0/fw_ver", "1\n");
  EXPECT_EQ(about("locked memory", calls, root).state, State::kWarning);
  calls.locked.rlim_cur = RLIM_INFINITY;
  EXPECT_EQ(about("locked memory", calls, root).state, State::kInfo);
}

TEST(ExamineLimits, OpenFilesMustDoForTheWorld) {
  const TemporaryFolder root;
  MemoryCalls calls;
  calls.files = {.rlim_cur = 1024, .rlim_max = 4096};
  EXPECT_EQ(about("open files", calls, root, 8).state, State::kOk);
  const Finding few = about("open files", calls, root, 512);
  EXPECT_EQ(few.state, State::kWarning);
  EXPECT_EQ(few.advice, "ulimit -n 2176");
}

}  // namespace
}  // namespace unisono::cli::doctor
