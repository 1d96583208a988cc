#pragma once

#include <sys/types.h>

#include <string_view>

namespace unisono {

/// As describe_process_state() has it.
inline constexpr std::string_view kStoppedProcess = "stopped";

/// What a process of this machine does, as the kernel says: "running", "sleeping", "waiting for the
/// system", "stopped", "gone".
[[nodiscard]] std::string_view describe_process_state(pid_t pid);

}  // namespace unisono
