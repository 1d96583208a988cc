#pragma once

#include <filesystem>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/examine_launcher.h"
#include "unisono/cli/doctor/report.h"

namespace unisono::cli::doctor {

struct Here {
  Place place;
  Examination examination;
};

/// All that one process can find out alone. `root` is "/".
[[nodiscard]] Here examine_here(const Environment& environment, const std::filesystem::path& root);

}  // namespace unisono::cli::doctor
