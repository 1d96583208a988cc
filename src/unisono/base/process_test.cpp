#include "unisono/base/process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"

namespace unisono {
namespace {

// A child that does `body` and then nothing, until it is killed; reaped with this object.
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
  // The kernel's clock has steps.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Child child;
  EXPECT_TRUE(has_ended(child.pid(), before));
}

}  // namespace
}  // namespace unisono
