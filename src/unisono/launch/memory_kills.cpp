#include "unisono/launch/memory_kills.h"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace unisono::launch {
namespace {

// The value of the line "oom_kill 3".
std::optional<std::uint64_t> read_count(const std::string& path) {
  std::ifstream file(path);
  std::string name;
  std::uint64_t value = 0;
  while (file >> name >> value) {
    if (name == "oom_kill") {
      return value;
    }
  }
  return std::nullopt;
}

// Lines of /proc/self/cgroup are "0::/path" (version 2) or "4:memory:/path" (version 1).
std::optional<std::uint64_t> read_group_count(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    const std::string_view kind = std::string_view(line).substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    std::optional<std::uint64_t> count;
    if (kind == "memory") {
      count = read_count(fmt::format("{}/sys/fs/cgroup/memory{}/memory.oom_control", root, path));
    } else if (kind.empty()) {
      count = read_count(fmt::format("{}/sys/fs/cgroup{}/memory.events", root, path));
    }
    if (count) {
      return count;
    }
  }
  return std::nullopt;
}

std::uint64_t since(const std::optional<std::uint64_t>& before,
                    const std::optional<std::uint64_t>& after) {
  return before && after && *after > *before ? *after - *before : 0;
}

}  // namespace

MemoryKills count_memory_kills(const std::string& root) {
  return {.group = read_group_count(root), .machine = read_count(root + "/proc/vmstat")};
}

std::string describe_kill(const MemoryKills& before, const MemoryKills& after) {
  if (const std::uint64_t n_killed = since(before.group, after.group); n_killed > 0) {
    return fmt::format(
        "memory ran out: the limit of this job's control group was reached, and the kernel killed "
        "{} of its processes",
        n_killed);
  }
  if (const std::uint64_t n_killed = since(before.machine, after.machine); n_killed > 0) {
    return fmt::format("memory ran out on this machine: the kernel killed {} processes meanwhile",
                       n_killed);
  }
  return before.machine && after.machine
             ? "SIGKILL came from outside; it was not for lack of memory"
             : "SIGKILL came from outside; if memory ran out, the kernel's log says so (dmesg)";
}

}  // namespace unisono::launch
