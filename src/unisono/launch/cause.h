#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>

namespace unisono::launch {

/// What a launcher exits with for what is its own trouble.
inline constexpr int kLauncherFailed = 1;

/// What a job ends with of which a rank kept the others for too long; timeout(1) has the same.
inline constexpr int kGivenUp = 124;

/// Why a job or a generation of it ended, if not because all its ranks were done.
struct Cause {
  int exit_code;
  std::optional<std::size_t> failed_worker;  ///< Nothing: it was no rank; `message` says what.
  std::string message;
  bool is_lost_guardian = false;  ///< The ranks may start again, as after a rank's failure.
};

/// A signal to the launcher.
[[nodiscard]] Cause signal_cause(int signal_number);

/// The guardian was killed, on this node of several; on the only one where `host` is empty.
[[nodiscard]] Cause lost_guardian_cause(pid_t guardian, const std::string& host);

}  // namespace unisono::launch
