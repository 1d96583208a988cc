#include "unisono/launch/cause.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <optional>

#include "unisono/launch/process/signals.h"
#include "unisono/launch/report.h"

namespace unisono::launch {

Cause signal_cause(int signal_number) {
  return {kSignalBase + signal_number,
          std::nullopt,
          fmt::format("ended by {}", signal_name(signal_number))};
}

Cause lost_guardian_cause(pid_t guardian) {
  return {
      kLauncherFailed,
      std::nullopt,
      fmt::format("the guardian process (pid {}) was killed, so all ranks were ended", guardian)};
}

}  // namespace unisono::launch
