#pragma once

#include <cstddef>
#include <string_view>

namespace unisono {

/// How many letters have to be put in, taken away or replaced, or neighbours exchanged, to make one
/// text of the other. Source: Damerau, A technique for computer detection and correction of
/// spelling errors, 1964.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace unisono
