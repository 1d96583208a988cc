#pragma once

#include <filesystem>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {

/// Which of NCCL, MPI and UCX the loader would find. Loads none.
[[nodiscard]] Findings examine_libraries(const Environment& environment,
                                         const std::filesystem::path& root);

}  // namespace unisono::cli::doctor
