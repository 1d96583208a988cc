#include "unisono/transport/shm/doorbell.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <gtest/gtest.h>

namespace unisono::shm {
namespace {

constexpr std::uint32_t kRounds = 5000;

// Shared memory of two processes. In each round each process stores, fences, and loads.
struct Litmus {
  struct alignas(64) Side {
    std::atomic<std::uint32_t> round;
    alignas(64) std::atomic<std::uint32_t> stored;
    alignas(64) std::atomic<bool> has_seen;
  };

  std::array<Side, 2> sides;
};

// Yields if both processes share one core.
void wait_for(const std::atomic<std::uint32_t>& number, std::uint32_t at_least) {
  for (int n_looks = 0; number.load(std::memory_order_acquire) < at_least; ++n_looks) {
    if (n_looks > 1000) {
      ::sched_yield();
    }
  }
}

template <class Fence>
void take_part(Litmus& litmus, std::size_t self, std::uint32_t round, Fence fence) {
  Litmus::Side& mine = litmus.sides[self];
  Litmus::Side& theirs = litmus.sides[1 - self];
  mine.round.store(round, std::memory_order_release);
  wait_for(theirs.round, round);
  mine.stored.store(round, std::memory_order_relaxed);
  fence();
  mine.has_seen.store(theirs.stored.load(std::memory_order_relaxed) == round,
                      std::memory_order_relaxed);
  // Both processes have loaded when both have stored this round.
  mine.round.store(round + 1, std::memory_order_release);
  wait_for(theirs.round, round + 1);
}

class AsymmetricFence : public ::testing::Test {
 protected:
  AsymmetricFence()
      : memory_(::mmap(
            nullptr, sizeof(Litmus), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)),
        litmus_(*new(memory_) Litmus{}) {}

  ~AsymmetricFence() override { ::munmap(memory_, sizeof(Litmus)); }

  // Returns the number of rounds in which neither process saw the other's store. `fence` belongs to
  // this process and `other_fence` to a child.
  template <class Fence, class OtherFence>
  int count_missed(Fence fence, OtherFence other_fence) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (std::uint32_t n = 1; n <= kRounds; ++n) {
        take_part(litmus_, 1, 3 * n, other_fence);
        // The parent checks both results before the next round.
        litmus_.sides[1].round.store((3 * n) + 2, std::memory_order_release);
        wait_for(litmus_.sides[0].round, (3 * n) + 2);
      }
      ::_exit(0);
    }
    int n_missed = 0;
    for (std::uint32_t n = 1; n <= kRounds; ++n) {
      take_part(litmus_, 0, 3 * n, fence);
      n_missed += litmus_.sides[0].has_seen || litmus_.sides[1].has_seen ? 0 : 1;
      litmus_.sides[0].round.store((3 * n) + 2, std::memory_order_release);
    }
    ::waitpid(child, nullptr, 0);
    return n_missed;
  }

  void* memory_;
  Litmus& litmus_;
};

TEST_F(AsymmetricFence, OfTwoProcessesOneSeesTheOther) {
  join_asymmetric_fences();
  EXPECT_EQ(count_missed([] { asymmetric_fence_light(); }, [] { return asymmetric_fence_heavy(); }),
            0);
}

TEST_F(AsymmetricFence, TwoLightOnesAreFullUntilTheProcessJoins) {
  const bool were_full = internal::are_light_fences_full.exchange(true);
  EXPECT_EQ(count_missed([] { asymmetric_fence_light(); }, [] { asymmetric_fence_light(); }), 0);
  internal::are_light_fences_full = were_full;
}

// Disables membarrier(2) for this process.
bool forbid_membarrier() {
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(AsymmetricFenceInASandbox, TheHeavyOneSaysThatItIsRefused) {
  if (::prctl(PR_GET_SECCOMP, 0, 0, 0, 0) < 0) {
    GTEST_SKIP() << "there are no system call filters here, as in an emulator";
  }
  const auto in_sandbox = [] {
    if (!forbid_membarrier()) {
      ::_exit(2);
    }
    join_asymmetric_fences();
    const bool is_refused = !asymmetric_fence_heavy();
    ::_exit(is_refused && internal::are_light_fences_full ? 0 : 1);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(in_sandbox(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace unisono::shm
