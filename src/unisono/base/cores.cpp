#include "unisono/base/cores.h"

#include <sched.h>
#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace unisono {
namespace {

constexpr std::size_t kMaxCores = 1 << 18;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

using CoreList = std::vector<int>;

// Gives processes cores of their own, one after the other, moving those before where that makes
// room: a matching by augmenting paths (Kuhn, 1955).
class Seats {
 public:
  // False if it can have none. `wishes` outlive this.
  bool seat(const CoreList& wishes) {
    tried_.clear();
    return try_seat(wishes);
  }

 private:
  bool try_seat(const CoreList& wishes) {
    const auto free = std::find_if(
        wishes.begin(), wishes.end(), [this](int core) { return !taken_.contains(core); });
    if (free != wishes.end()) {
      taken_[*free] = &wishes;
      return true;
    }
    return std::any_of(wishes.begin(), wishes.end(), [&](int core) {
      if (!tried_.insert(core).second || !try_seat(*taken_.at(core))) {
        return false;
      }
      taken_[core] = &wishes;
      return true;
    });
  }

  std::map<int, const CoreList*> taken_;
  std::set<int> tried_;
};

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

std::vector<int> cores_of(pid_t pid) {
  // The kernel refuses a mask that is shorter than its own.
  for (std::size_t n_cores = 1024; n_cores <= kMaxCores; n_cores *= 2) {
    const std::size_t n_bytes = CPU_ALLOC_SIZE(n_cores);
    const std::unique_ptr<cpu_set_t, FreeCpuSet> set(CPU_ALLOC(n_cores));
    if (::sched_getaffinity(pid, n_bytes, set.get()) == 0) {
      std::vector<int> cores;
      for (std::size_t core = 0; core < n_cores; ++core) {
        if (CPU_ISSET_S(core, n_bytes, set.get())) {
          cores.push_back(static_cast<int>(core));
        }
      }
      return cores;
    }
    if (errno != EINVAL) {
      break;
    }
  }
  return {};
}

int available_cores() {
  const int n_cores = static_cast<int>(cores_of(0).size());
  return std::max(1, std::min(n_cores, quota_cores()));
}

bool has_core_for_each(std::span<const pid_t> processes) {
  if (processes.size() > static_cast<std::size_t>(std::max(1, quota_cores()))) {
    return false;
  }
  std::map<pid_t, CoreList> cores;
  Seats seats;
  return std::all_of(processes.begin(), processes.end(), [&](pid_t pid) {
    const auto [entry, is_new] = cores.try_emplace(pid);
    if (is_new) {
      entry->second = cores_of(pid);
      if (entry->second.empty()) {
        entry->second = cores_of(0);
      }
    }
    return seats.seat(entry->second);
  });
}

}  // namespace unisono
