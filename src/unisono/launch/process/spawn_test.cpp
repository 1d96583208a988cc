#include "unisono/launch/process/spawn.h"

#include <sys/wait.h>

#include <cerrno>
#include <chrono>

#include <gtest/gtest.h>

#include "unisono/base/process.h"

namespace unisono::launch {
namespace {

SpawnResult spawn_shell(const std::string& script, const std::vector<int>& cores) {
  std::vector<std::string> words{"sh", "-c", script};
  const std::vector<char*> argv = pointers(words);
  std::vector<std::string> none;
  const std::vector<char*> environment = pointers(none);
  SpawnRequest request{
      .path = "/bin/sh", .argv = argv.data(), .environment = environment.data(), .cores = cores};
  ::sigemptyset(&request.signal_mask);
  return spawn(request, -1, Deadline::after(std::chrono::seconds(20)));
}

TEST(Spawn, TheProgramIsBoundBeforeItStarts) {
  const int core = cores_of(0).back();
  const SpawnResult result = spawn_shell(
      "grep -q '^Cpus_allowed_list:[[:space:]]*" + std::to_string(core) + "$' /proc/self/status",
      {core});
  ASSERT_GT(result.pid, 0);
  int status = -1;
  ASSERT_EQ(::waitpid(result.pid, &status, 0), result.pid);
  EXPECT_EQ(status, 0);
}

TEST(Spawn, CoresThatAreNotThereAreToldApartFromAProgramThatIsNot) {
  const SpawnResult result = spawn_shell("exit 0", {100'000});
  EXPECT_EQ(result.pid, -1);
  EXPECT_EQ(result.error_number, EINVAL);
  EXPECT_TRUE(result.is_of_cores);
}

}  // namespace
}  // namespace unisono::launch
