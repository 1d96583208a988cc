#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {

/// Kernel, distribution, and the container that this process seems to be in.
[[nodiscard]] Findings examine_kernel(const Environment& environment,
                                      const std::filesystem::path& root);

/// Why process_vm_readv() fails even on the caller's own memory; empty if it works.
[[nodiscard]] std::string try_single_copy();

/// Whether ranks of a node may read each other's memory; `error` is what try_single_copy()
/// returned.
[[nodiscard]] Finding examine_single_copy(const std::string& error,
                                          const std::filesystem::path& root);

/// What the system knows of its clock.
struct WallClock {
  std::chrono::system_clock::time_point now;
  bool is_synchronized = false;
};

[[nodiscard]] WallClock read_clock();
[[nodiscard]] Finding examine_clock(const WallClock& clock);

}  // namespace unisono::cli::doctor
