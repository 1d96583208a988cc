#include "unisono/base/process_state.h"

#include <optional>
#include <string>

#include "unisono/base/process.h"

namespace unisono {

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

}  // namespace unisono
