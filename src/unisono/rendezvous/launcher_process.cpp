#include "unisono/rendezvous/launcher_process.h"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <string>

#include "unisono/base/process.h"

namespace unisono::rendezvous {
namespace {

// The environment that a process was started with. Another user's can't be read, but a rank's
// ancestors up to its launcher belong to the rank's user.
bool was_started_with(pid_t process, const std::string& variable) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(variable + "=")) {
      return true;
    }
  }
  return false;
}

// 0 where it is not to be found.
pid_t parent_of(pid_t process) {
  const std::optional<ProcessStat> stat = read_process_stat(fmt::format("/proc/{}", process));
  return stat ? stat->parent : 0;
}

}  // namespace

std::optional<pid_t> process_that_set(const char* variable) {
  pid_t process = ::getppid();
  while (process > 0 && was_started_with(process, variable)) {
    process = parent_of(process);
  }
  return process > 0 ? std::optional(process) : std::nullopt;
}

}  // namespace unisono::rendezvous
