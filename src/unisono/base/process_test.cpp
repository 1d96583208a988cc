#include "unisono/base/process.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstddef>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono {
namespace {

// A child that calls `body` and then waits until the child is killed. The destructor reaps the
// child.
class Child {
 public:
  explicit Child(const std::function<void()>& body = [] {}) : pid_(::fork()) {
    if (pid_ == 0) {
      body();
      for (;;) {
        ::pause();
      }
    }
    EXPECT_GT(pid_, 0);
  }

  ~Child() {
    ::kill(pid_, SIGKILL);
    EXPECT_EQ(::waitpid(pid_, nullptr, 0), pid_);
  }

  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child(Child&&) = delete;
  Child& operator=(Child&&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  [[nodiscard]] char state() const {
    return read_process_stat("/proc/" + std::to_string(pid_)).value().state;
  }

  void wait_until_state(char wanted) const {
    const Deadline deadline = Deadline::after(std::chrono::seconds(30));
    while (state() != wanted && !deadline.has_passed()) {
      std::this_thread::yield();
    }
    EXPECT_EQ(state(), wanted);
  }

 private:
  pid_t pid_;
};

TEST(Process, OneThatRunsHasNotEnded) {
  EXPECT_FALSE(has_ended(::getpid(), boot_time()));
  const Child child;
  EXPECT_FALSE(has_ended(child.pid(), boot_time()));
  ASSERT_EQ(::kill(child.pid(), SIGSTOP), 0);
  child.wait_until_state('T');
  EXPECT_FALSE(has_ended(child.pid(), boot_time()));
}

TEST(Process, OneThatNobodyHasReapedHasEnded) {
  const Child child;
  ASSERT_EQ(::kill(child.pid(), SIGKILL), 0);
  child.wait_until_state('Z');
  EXPECT_EQ(::kill(child.pid(), 0), 0);
  EXPECT_TRUE(has_ended(child.pid(), boot_time()));
}

TEST(Process, OneThatIsReapedHasEnded) {
  pid_t pid = 0;
  {
    const Child child;
    pid = child.pid();
  }
  EXPECT_TRUE(has_ended(pid, boot_time()));
}

TEST(Process, OneWhoseFirstThreadAloneEndsHasNotEnded) {
  const Child child([] {
    std::thread([] { ::pause(); }).detach();
    ::syscall(SYS_exit, 0);
  });
  child.wait_until_state('Z');
  EXPECT_FALSE(has_ended(child.pid(), boot_time()));
}

TEST(Process, OneThatHasGotThePidLaterIsAnother) {
  const std::chrono::nanoseconds before = boot_time();
  // The kernel's clock has a coarse resolution.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Child child;
  EXPECT_TRUE(has_ended(child.pid(), before));
}

// Returns the cores of this process if there are at least `n`; otherwise fewer.
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

// An idle process that is bound to some cores.
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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(LoadedLibrary, FindsFunctions) {
  double (*cosine)(double) = nullptr;
  LoadedLibrary("libm.so.6").find("cos", cosine);
  EXPECT_EQ(cosine(0.5), std::cos(0.5));
}

TEST(LoadedLibrary, HasThePathOfTheFile) {
  const std::string path = LoadedLibrary("libm.so.6").path();
  EXPECT_THAT(path, ::testing::MatchesRegex("/.*/libm.so.6"));
}

TEST(LoadedLibrary, SaysWhichLibraryOrFunctionIsMissing) {
  EXPECT_THAT([] { (void)LoadedLibrary("libunisono_of_nowhere.so.1"); },
              ThrowsMessage<Error>(HasSubstr("libunisono_of_nowhere.so.1")));
  EXPECT_THAT(
      [] {
        int (*function)() = nullptr;
        LoadedLibrary("libm.so.6").find("unisono_of_nowhere", function);
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("libm.so.6"), HasSubstr("unisono_of_nowhere"))));
}

}  // namespace
}  // namespace unisono
