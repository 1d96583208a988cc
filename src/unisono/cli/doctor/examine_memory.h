#pragma once

#include <filesystem>

#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {

/// Memory of the machine and of this process's control groups, and its huge pages, as /proc and
/// /sys under `root` have it.
[[nodiscard]] Findings examine_memory(const std::filesystem::path& root);

}  // namespace unisono::cli::doctor
