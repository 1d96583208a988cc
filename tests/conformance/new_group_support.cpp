#include "new_group_support.h"

#include <cstdint>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

#include "support/process.h"
#include "support/ranks.h"

namespace unisono::test {
namespace {

// Returns the resident memory of the arenas, which are the only shared memory of this process.
std::int64_t resident_arena_kib() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word == "RssShmem:") {
      std::int64_t kib = 0;
      file >> kib;
      return kib;
    }
  }
  ADD_FAILURE() << "/proc/self/status has no RssShmem";
  return 0;
}

}  // namespace

const std::vector<World> kLayouts{
    one_node(4), World{.nodes = {"a", "a", "b", "b"}}, World{.nodes = {"a", "b", "a", "b"}}};

int sum_of(ProcessGroup& group, int value) {
  group.all_reduce(as_buffer(std::span(&value, 1)));
  return value;
}

void expect_a_thousand_to_leave_nothing(ProcessGroup& group,
                                        const std::function<void(int round)>& make_and_use) {
  constexpr int kFirst = 20;
  for (int round = 0; round < kFirst; ++round) {
    make_and_use(round);
  }
  group.barrier();
  const int n_descriptors = n_entries("/proc/self/fd");
  const int n_threads = n_entries("/proc/self/task");
  const std::int64_t n_kib = resident_arena_kib();
  group.barrier();
  for (int round = kFirst; round < kFirst + 1000; ++round) {
    make_and_use(round);
  }
  group.barrier();
  EXPECT_LE(n_entries("/proc/self/fd"), n_descriptors + 8);
  EXPECT_LE(n_entries("/proc/self/task"), n_threads);
  // A leak of a thousand control blocks would be about 40 MiB.
  EXPECT_LE(resident_arena_kib(), n_kib + 8192);
  group.barrier();
}

}  // namespace unisono::test
