#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/fd.h"

namespace unisono {

/// State that the kernel reports for a process or a thread.
struct ProcessStat {
  char state = '?';  ///< State letter of ps(1): 'R', 'S', 'D', 'T', 'Z', ...
  pid_t parent = 0;
  std::uint64_t flags = 0;    ///< The kernel's PF_ bits.
  std::uint64_t pending = 0;  ///< Pending signals 1 to 31; bit 0 is signal 1.
  /// Start time on the clock of boot_time(), with a resolution of 10 ms.
  std::chrono::nanoseconds start;
};

/// Reads the stat file of a /proc folder such as "/proc/4123". Returns std::nullopt if the file
/// does not exist.
[[nodiscard]] std::optional<ProcessStat> read_process_stat(const std::string& folder);

/// Returns the time since the machine started, including time in suspend.
[[nodiscard]] std::chrono::nanoseconds boot_time();

/// Returns true if a process of this machine that ran at `known_at` (on the clock of boot_time())
/// has ended. This includes a process that the parent has not reaped, a process that is being
/// killed and releases memory, and a pid that now belongs to another process. Reads one file per
/// thread of the process.
[[nodiscard]] bool has_ended(pid_t pid, std::chrono::nanoseconds known_at);

/// Returns a descriptor that becomes readable when the process ends. The descriptor is not open if
/// there is no such process or if the kernel lacks pidfd_open(2).
[[nodiscard]] Fd open_pidfd(pid_t pid);

/// Result of describe_process_state() for a stopped process.
inline constexpr std::string_view kStoppedProcess = "stopped";

/// Returns the kernel's state of a process of this machine: "running", "sleeping", "waiting for the
/// system", "stopped", "gone" or "in an unknown state".
[[nodiscard]] std::string_view describe_process_state(pid_t pid);

/// Returns the processors that a process (0: the calling thread) may use, by the kernel's numbers,
/// in ascending order. Empty if the kernel does not return them.
[[nodiscard]] std::vector<int> cores_of(pid_t pid);

/// Returns the number of processors that this process may use at the same time: the size of its
/// affinity mask, or the cgroup quota if that is smaller. At least 1.
[[nodiscard]] int available_cores();

/// Returns true if these processes of this machine, such as the ranks of a node, can all run at the
/// same time on separate cores. The processes may then spin in waits.
///
/// A process may be listed several times. If the affinity of a process is unknown, the affinity of
/// the calling thread is used.
[[nodiscard]] bool has_core_for_each(std::span<const pid_t> processes);

/// A system library that is loaded on demand. The library is never unloaded, because libraries that
/// it has loaded may not support that.
class LoadedLibrary {
 public:
  /// `file` is a name for the dynamic loader, such as "libpmix.so.2".
  ///
  /// Throws Error(kNotFound) with the loader's reason.
  explicit LoadedLibrary(std::string file);

  /// Sets `function` to the library's function `name`. The caller guarantees the function's type.
  ///
  /// Throws Error(kNotFound) that names the library and the function.
  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(address_of(name));
  }

  /// Returns the path of the loaded file.
  [[nodiscard]] std::string path() const;

 private:
  [[nodiscard]] void* address_of(const char* name) const;

  std::string file_;
  void* handle_;
};

/// Returns the library's version, such as "1.2.3".
[[nodiscard]] const char* release() noexcept;

}  // namespace unisono
