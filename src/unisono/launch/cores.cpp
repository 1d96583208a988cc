#include "unisono/launch/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>

namespace unisono::launch {
namespace {

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

}  // namespace

int usable_cores() {
  // The kernel refuses a mask that is shorter than its own.
  constexpr std::size_t kMaxCores = 1 << 18;
  for (std::size_t n_cores = 1024; n_cores <= kMaxCores; n_cores *= 2) {
    const std::size_t n_bytes = CPU_ALLOC_SIZE(n_cores);
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(n_cores));
    if (::sched_getaffinity(0, n_bytes, set.get()) == 0) {
      return std::max(1, CPU_COUNT_S(n_bytes, set.get()));
    }
    if (errno != EINVAL) {
      break;
    }
  }
  return 1;
}

}  // namespace unisono::launch
