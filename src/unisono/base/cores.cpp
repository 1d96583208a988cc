#include "unisono/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

namespace unisono {
namespace {

constexpr std::size_t kMaxCores = 1 << 18;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

int affinity_cores() {
  // The kernel refuses a mask that is shorter than its own.
  for (std::size_t n_cores = 1024; n_cores <= kMaxCores; n_cores *= 2) {
    const std::size_t n_bytes = CPU_ALLOC_SIZE(n_cores);
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(n_cores));
    if (::sched_getaffinity(0, n_bytes, set.get()) == 0) {
      return CPU_COUNT_S(n_bytes, set.get());
    }
    if (errno != EINVAL) {
      break;
    }
  }
  return 1;
}

// cgroup v2's cpu.max as this process's namespace shows it: "max 100000" or "150000 100000".
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  long period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return static_cast<int>(kMaxCores);
  }
  return static_cast<int>(std::strtol(quota.c_str(), nullptr, 10) / period);
}

}  // namespace

int available_cores() {
  return std::max(1, std::min(affinity_cores(), quota_cores()));
}

bool has_core_for_each(int n) {
  return n <= available_cores();
}

}  // namespace unisono
