#include "unisono/base/process.h"

#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

namespace unisono {
namespace {

using std::chrono::nanoseconds;

// PF_EXITING and PF_SIGNALED of the kernel, which come before a thread gives up its files and its
// memory: that may take a second.
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
  // "pid (name) state parent ...": the name may hold anything, a parenthesis or a line's end too.
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
  // The first thread may have ended alone. One that goes while this looks is for the next look.
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

}  // namespace unisono
