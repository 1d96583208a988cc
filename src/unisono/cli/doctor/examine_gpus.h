#pragma once

#include <filesystem>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {

/// NVIDIA's driver and devices, and whether CUDA_VISIBLE_DEVICES fits them.
[[nodiscard]] Findings examine_gpus(const Environment& environment,
                                    const std::filesystem::path& root);

}  // namespace unisono::cli::doctor
