#include "unisono/base/cores.h"

#include <sched.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace unisono {
namespace {

// The cores of this process, of which there are at least `n`; else fewer.
std::vector<std::size_t> some_cores(std::size_t n) {
  cpu_set_t set;
  std::vector<std::size_t> cores;
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (std::size_t core = 0; core < CPU_SETSIZE && cores.size() < n; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

// A process that does nothing, on some cores alone.
class Sleeper {
 public:
  explicit Sleeper(const std::vector<std::size_t>& cores) : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const std::size_t core : cores) {
      CPU_SET(core, &set);
    }
    EXPECT_EQ(::sched_setaffinity(pid_, sizeof(set), &set), 0);
  }

  ~Sleeper() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  Sleeper(Sleeper&&) = delete;
  Sleeper& operator=(Sleeper&&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

bool have_cores(const std::vector<pid_t>& processes) {
  return has_core_for_each(processes);
}

TEST(Cores, SufficeForAsManyAsThereAre) {
  const auto n = static_cast<std::size_t>(available_cores());
  EXPECT_GE(n, 1U);
  EXPECT_TRUE(have_cores({}));
  EXPECT_TRUE(have_cores(std::vector<pid_t>(n, ::getpid())));
  EXPECT_FALSE(have_cores(std::vector<pid_t>(n + 1, ::getpid())));
}

TEST(Cores, OfProcessesThatArePinnedTheirOwnCount) {
  const std::vector<std::size_t> cores = some_cores(2);
  if (cores.size() < 2 || available_cores() < 2) {
    GTEST_SKIP() << "this process may use one core alone";
  }
  const Sleeper first({cores[0]});
  const Sleeper second({cores[1]});
  const Sleeper also_first({cores[0]});
  const Sleeper either({cores[0], cores[1]});
  EXPECT_TRUE(have_cores({first.pid(), second.pid()}));
  EXPECT_FALSE(have_cores({first.pid(), also_first.pid()}));
  EXPECT_TRUE(have_cores({either.pid(), first.pid()}));
  EXPECT_TRUE(have_cores({either.pid(), second.pid()}));
  EXPECT_FALSE(have_cores({either.pid(), first.pid(), second.pid()}));
}

TEST(Cores, OfAnUnknownProcessAreTakenToBeThisOnes) {
  constexpr pid_t kNobody = 0x7FFFFFFF;
  ASSERT_EQ(::kill(kNobody, 0), -1);
  ASSERT_EQ(errno, ESRCH);
  const auto n = static_cast<std::size_t>(available_cores());
  EXPECT_TRUE(have_cores(std::vector<pid_t>(n, kNobody)));
  EXPECT_FALSE(have_cores(std::vector<pid_t>(n + 1, kNobody)));
}

}  // namespace
}  // namespace unisono
