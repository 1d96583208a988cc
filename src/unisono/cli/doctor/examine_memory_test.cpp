#include "unisono/cli/doctor/examine_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kPlenty = "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n";

TEST(ExamineMemory, SaysWhatIsAvailable) {
  const TemporaryFolder root;
  EXPECT_THAT(examine_memory(root.path()), IsEmpty());
  (void)root.write("proc/meminfo", kPlenty);
  EXPECT_THAT(
      examine_memory(root.path()),
      ElementsAre(Finding{
          .state = State::kOk, .topic = "memory", .text = "8 GiB of 16 GiB are available"}));
  (void)root.write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 102400 kB\n");
  const Findings little = examine_memory(root.path());
  ASSERT_EQ(little.size(), 1);
  EXPECT_EQ(little[0].state, State::kWarning);
}

TEST(ExamineMemory, TheTightestControlGroupCounts) {
  const TemporaryFolder root;
  (void)root.write("proc/meminfo", kPlenty);
  (void)root.write("proc/self/cgroup", "0::/pod/container\n");
  (void)root.write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  (void)root.write("sys/fs/cgroup/pod/memory.max", "1073741824\n");
  (void)root.write("sys/fs/cgroup/pod/memory.current", "1063256064\n");
  const Findings findings = examine_memory(root.path());
  ASSERT_EQ(findings.size(), 2);
  EXPECT_EQ(findings[1].state, State::kWarning);
  EXPECT_THAT(findings[1].text, HasSubstr("may use 1 GiB, of which 10 MiB are left"));
}

TEST(ExamineMemory, ControlGroupsOfTheFirstVersionCountToo) {
  const TemporaryFolder root;
  (void)root.write("proc/meminfo", kPlenty);
  (void)root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(examine_memory(root.path()).size(), 1);
  (void)root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  (void)root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  const Findings findings = examine_memory(root.path());
  ASSERT_EQ(findings.size(), 2);
  EXPECT_EQ(findings[1].state, State::kOk);
  EXPECT_THAT(findings[1].text, HasSubstr("4 GiB, of which 3 GiB"));
}

TEST(ExamineMemory, StrictOvercommitIsNamed) {
  const TemporaryFolder root;
  (void)root.write("proc/meminfo",
                   std::string(kPlenty) + "CommitLimit: 1048576 kB\nCommitted_AS: 1000000 kB\n");
  (void)root.write("proc/sys/vm/overcommit_memory", "2\n");
  const Findings findings = examine_memory(root.path());
  ASSERT_EQ(findings.size(), 2);
  EXPECT_EQ(findings[1].state, State::kWarning);
  EXPECT_THAT(findings[1].text, HasSubstr("overcommit_memory=2"));
  (void)root.write("proc/sys/vm/overcommit_memory", "0\n");
  EXPECT_EQ(examine_memory(root.path()).size(), 1);
}

TEST(ExamineMemory, SaysWhetherSharedMemoryMayHaveHugePages) {
  const TemporaryFolder root;
  const char* const path = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  (void)root.write(path, "always within_size advise [never] deny force\n");
  const Findings without = examine_memory(root.path());
  ASSERT_EQ(without.size(), 1);
  EXPECT_EQ(without[0].state, State::kInfo);
  EXPECT_EQ(without[0].topic, "huge pages");
  EXPECT_THAT(without[0].text, HasSubstr("\"never\": the memory that ranks share has small pages"));
  EXPECT_THAT(without[0].advice, HasSubstr("echo advise >/sys/kernel/mm/"));
  (void)root.write(path, "always within_size [advise] never deny force\n");
  const Findings with = examine_memory(root.path());
  ASSERT_EQ(with.size(), 1);
  EXPECT_THAT(with[0].text, HasSubstr("\"advise\": large blocks"));
  EXPECT_EQ(with[0].advice, "");
  (void)root.write(path, "junk\n");
  EXPECT_THAT(examine_memory(root.path()), IsEmpty());
}

}  // namespace
}  // namespace unisono::cli::doctor
