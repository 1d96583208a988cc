#pragma once

#include <string>

#include "unisono/report/progress_text.h"

namespace unisono::report {

/// The state as an object in a line, with "\n". JSON has no number for NaN and the infinities: they
/// are the strings "NaN", "Infinity" and "-Infinity".
[[nodiscard]] std::string json_line(const ProgressState& state, int rank, double unix_seconds);

}  // namespace unisono::report
