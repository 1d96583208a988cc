#include "unisono/rendezvous/launchers/launcher_process.h"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/process.h"

namespace unisono::rendezvous {
namespace {

// What follows `beginning` in an entry of the environment that a process was started with. Another
// user's can't be read, but a rank's ancestors up to its launcher belong to the rank's user.
std::optional<std::string> rest_of_entry(pid_t process, const std::string& beginning) {
  std::ifstream file(fmt::format("/proc/{}/environ", process));
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(beginning)) {
      return entry.substr(beginning.size());
    }
  }
  return std::nullopt;
}

// 0 where it is not to be found.
pid_t parent_of(pid_t process) {
  const std::optional<ProcessStat> stat = read_process_stat(fmt::format("/proc/{}", process));
  return stat ? stat->parent : 0;
}

constexpr char kPort[] = "MASTER_PORT";
// Those that are set are of one rank, also where a rank of one launcher has started another, whose
// ranks have a file or a job of their own.
constexpr std::array kRanksOwn{"TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE"};

bool is_port_launchers(const Environment& environment) {
  std::vector<std::string> entries;
  for (const char* const name : kRanksOwn) {
    if (const std::optional<std::string> value = environment(name)) {
      entries.push_back(std::string(name) + "=" + *value);
    }
  }
  if (entries.empty()) {
    return true;
  }
  const std::optional<std::string> first = value_at_start(kPort, entries);
  return !first || environment(kPort).value_or(*first) == *first;
}

}  // namespace

std::optional<pid_t> process_that_set(const char* variable) {
  const std::string beginning = std::string(variable) + "=";
  pid_t process = ::getppid();
  while (process > 0 && rest_of_entry(process, beginning)) {
    process = parent_of(process);
  }
  return process > 0 ? std::optional(process) : std::nullopt;
}

std::optional<std::string> value_at_start(const char* variable,
                                          const std::vector<std::string>& entries) {
  std::optional<std::string> value;
  pid_t process = ::getpid();
  const auto has = [&process](const std::string& entry) {
    return rest_of_entry(process, entry) == "";
  };
  for (; process > 0 && std::ranges::all_of(entries, has); process = parent_of(process)) {
    value = rest_of_entry(process, std::string(variable) + "=");
  }
  return value;
}

bool has_agent_store(const Environment& environment) {
  const std::string use = environment("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  return (use == "True" || use == "true" || use == "1") && is_port_launchers(environment);
}

}  // namespace unisono::rendezvous
