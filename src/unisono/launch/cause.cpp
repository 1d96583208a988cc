#include "unisono/launch/cause.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <optional>
#include <string>

#include "unisono/launch/process/signals.h"
#include "unisono/launch/report.h"

namespace unisono::launch {

Cause signal_cause(int signal_number) {
  return {kSignalBase + signal_number,
          std::nullopt,
          fmt::format("ended by {}", signal_name(signal_number))};
}

Cause lost_guardian_cause(pid_t guardian, const std::string& host) {
  return {
      .exit_code = kLauncherFailed,
      .failed_worker = std::nullopt,
      .message = fmt::format("the guardian process ({}pid {}) was killed, so its ranks were ended",
                             host.empty() ? "" : host + ", ",
                             guardian),
      .is_lost_guardian = true};
}

}  // namespace unisono::launch
