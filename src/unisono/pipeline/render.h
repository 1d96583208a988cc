#pragma once

#include <string>

#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {

/// Draws a step in letters, planned or measured: a line for each rank, of at most `max_columns`
/// columns and some more for its name, and one that explains them.
///
/// An action is its letter, in lower case unless it is in the rank's first stage, its chunk's
/// number and blanks; where it has too few columns for them, the number and then the letter are
/// left out. Points are idle time.
[[nodiscard]] std::string render_text(const Timeline& timeline, int max_columns = 120);

/// Draws the same as an image in SVG. `unit` is that of the times, as the axis shows it: "ms".
[[nodiscard]] std::string render_svg(const Timeline& timeline, const std::string& unit);

}  // namespace unisono::pipeline
