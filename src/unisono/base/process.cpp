#include "unisono/base/process.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"

namespace unisono {
namespace {

using std::chrono::nanoseconds;

// The kernel's PF_EXITING and PF_SIGNALED, which the kernel sets before a thread releases files and
// memory. The release can take a second.
constexpr std::uint64_t kExiting = 0x404;

constexpr std::uint64_t kKilled = std::uint64_t{1} << (SIGKILL - 1);

bool is_over(const ProcessStat& thread) {
  return thread.state == 'Z' || thread.state == 'X' || (thread.flags & kExiting) != 0 ||
         (thread.pending & kKilled) != 0;
}

nanoseconds from_ticks(std::uint64_t n_ticks) {
  constexpr std::uint64_t kNanoseconds = 1'000'000'000;
  const auto ticks_per_second = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return nanoseconds(n_ticks * (kNanoseconds / ticks_per_second));
}

}  // namespace

std::optional<ProcessStat> read_process_stat(const std::string& folder) {
  const std::ifstream file(folder + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  const std::string stat = text.str();
  // The format is "pid (name) state parent ...". The name may contain any character, including a
  // parenthesis or a newline.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) {
    return std::nullopt;
  }
  // Fields by their numbers in proc_pid_stat(5).
  constexpr int kFlags = 9;
  constexpr int kStart = 22;
  constexpr int kPending = 31;
  std::istringstream fields(stat.substr(name_end + 1));
  ProcessStat found{};
  fields >> found.state >> found.parent;
  std::string skipped;
  for (int field = 5; field <= kPending; ++field) {
    if (field == kFlags) {
      fields >> found.flags;
    } else if (field == kStart) {
      std::uint64_t n_ticks = 0;
      fields >> n_ticks;
      found.start = from_ticks(n_ticks);
    } else if (field == kPending) {
      fields >> found.pending;
    } else {
      fields >> skipped;
    }
  }
  return fields ? std::optional(found) : std::nullopt;
}

nanoseconds boot_time() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + nanoseconds(now.tv_nsec);
}

bool has_ended(pid_t pid, nanoseconds known_at) {
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::optional<ProcessStat> process = read_process_stat(folder);
  if (!process) {
    return ::kill(pid, 0) != 0 && errno == ESRCH;  // There may be no /proc.
  }
  if (process->start > known_at) {
    return true;
  }
  // The first thread may have ended alone, so all threads are checked. If a thread ends during this
  // check, the next call detects that.
  std::error_code error;
  for (std::filesystem::directory_iterator thread(folder + "/task", error), end;
       !error && thread != end;
       thread.increment(error)) {
    const std::optional<ProcessStat> stat = read_process_stat(thread->path());
    if (!stat || !is_over(*stat)) {
      return false;
    }
  }
  return !error;
}

Fd open_pidfd(pid_t pid) {
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

std::string_view describe_process_state(pid_t pid) {
  const std::optional<ProcessStat> stat = read_process_stat("/proc/" + std::to_string(pid));
  if (!stat || has_ended(pid, boot_time())) {
    return "gone";
  }
  switch (stat->state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "waiting for the system";
    case 'T':
    case 't':
      return kStoppedProcess;
    default:
      return "in an unknown state";
  }
}

namespace {

constexpr std::size_t kMaxCores = 1 << 18;

struct FreeCpuSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

using CoreList = std::vector<int>;

// Assigns a separate core to each process, in order. An earlier process moves to another core if
// that frees a core: bipartite matching by augmenting paths (Kuhn, 1955).
class Seats {
 public:
  // Returns false if no core can be assigned. `wishes` must outlive this object.
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

// Returns the number of whole cores that cgroup v2's cpu.max of this process's namespace allows.
// The file contains "max 100000" or "150000 100000".
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
  // The kernel rejects a mask that is shorter than the kernel's own mask.
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

LoadedLibrary::LoadedLibrary(std::string file)
    : file_(std::move(file)), handle_(::dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the C library keeps it for each thread.
    const char* const reason = ::dlerror();
    throw Error(ErrorCode::kNotFound, reason == nullptr ? file_ + " can't be loaded" : reason);
  }
}

void* LoadedLibrary::address_of(const char* name) const {
  void* const address = ::dlsym(handle_, name);
  if (address == nullptr) {
    throw Error(ErrorCode::kNotFound, fmt::format("{} has no {}", path(), name));
  }
  return address;
}

std::string LoadedLibrary::path() const {
  link_map* entry = nullptr;
  const bool is_known = ::dlinfo(handle_, RTLD_DI_LINKMAP, &entry) == 0 && entry != nullptr;
  return is_known ? entry->l_name : file_;
}

const char* release() noexcept {
  return UNISONO_VERSION;
}

}  // namespace unisono
