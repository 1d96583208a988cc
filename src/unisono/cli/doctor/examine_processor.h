#pragma once

#include <filesystem>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/examine_launcher.h"
#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {

/// Cores as the system counts them.
struct Cores {
  int usable = 1;  ///< available_cores().
  int online = 1;  ///< Of the machine.
};

[[nodiscard]] Cores count_cores();

/// Cores and threads for the ranks of this node, and the quota of its control group.
[[nodiscard]] Findings examine_cores(const Environment& environment,
                                     const Place& place,
                                     const Cores& cores,
                                     const std::filesystem::path& root);

[[nodiscard]] Findings examine_numa(const std::filesystem::path& root);

}  // namespace unisono::cli::doctor
