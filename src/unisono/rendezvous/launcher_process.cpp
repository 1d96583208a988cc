#include "unisono/rendezvous/launcher_process.h"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

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
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  std::string text;
  std::getline(file, text);
  // "pid (name) state parent ...": the name may hold anything.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return 0;
  }
  std::istringstream rest(text.substr(name_end + 1));
  char state = 0;
  pid_t parent = 0;
  rest >> state >> parent;
  return parent;
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
