#include "unisono/engine/native/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

namespace unisono::engine {
namespace {

int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Machines with more than CPU_SETSIZE processors say no here; they have enough.
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : CPU_SETSIZE;
}

// cgroup v2's cpu.max as this process's namespace shows it: "max 100000" or "150000 100000".
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  long period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return CPU_SETSIZE;
  }
  return static_cast<int>(std::strtol(quota.c_str(), nullptr, 10) / period);
}

}  // namespace

int available_cores() {
  return std::max(1, std::min(affinity_cores(), quota_cores()));
}

}  // namespace unisono::engine
