#pragma once

#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {

/// The settings that are set, those whose values are wrong, and among `names` (of variables that
/// begin with UNISONO_) those that mean nothing.
[[nodiscard]] Findings examine_settings(const Environment& environment,
                                        const std::vector<std::string>& names);

/// The settings; the default of one whose value is wrong.
[[nodiscard]] Config readable_config(const Environment& environment);

}  // namespace unisono::cli::doctor
