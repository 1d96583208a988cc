#include "unisono/launch/memory_kills.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/temporary_folder.h"

namespace unisono::launch {
namespace {

using test::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(MemoryKills, AreCountedInBothVersionsOfControlGroups) {
  const TemporaryFolder root;
  (void)root.write("proc/vmstat", "nr_free_pages 7\noom_kill 5\n");
  (void)root.write("proc/self/cgroup", "4:memory:/job\n0::/\n");
  (void)root.write("sys/fs/cgroup/memory/job/memory.oom_control",
                   "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  const MemoryKills first = count_memory_kills(root.path());
  EXPECT_EQ(first.group, 2U);
  EXPECT_EQ(first.machine, 5U);
  (void)root.write("proc/self/cgroup", "0::/job\n");
  (void)root.write("sys/fs/cgroup/job/memory.events", "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\n");
  EXPECT_EQ(count_memory_kills(root.path()).group, 3U);
}

TEST(MemoryKills, MayBeUnknown) {
  const TemporaryFolder root;
  const MemoryKills none = count_memory_kills(root.path());
  EXPECT_FALSE(none.group.has_value());
  EXPECT_FALSE(none.machine.has_value());
  EXPECT_THAT(describe_kill(none, none), HasSubstr("dmesg"));
}

TEST(MemoryKills, SayWhereASigkillCameFrom) {
  const MemoryKills before{.group = 1, .machine = 5};
  EXPECT_THAT(describe_kill(before, {.group = 2, .machine = 6}), HasSubstr("control group"));
  EXPECT_THAT(describe_kill(before, {.group = 1, .machine = 7}),
              HasSubstr("killed 2 processes meanwhile"));
  EXPECT_THAT(describe_kill(before, before), StartsWith("SIGKILL came from outside; it was not"));
}

TEST(MemoryKills, OfThisMachineCanBeRead) {
  EXPECT_TRUE(count_memory_kills().machine.has_value());
}

}  // namespace
}  // namespace unisono::launch
