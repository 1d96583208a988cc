#pragma once

#include <cstddef>
#include <string_view>

namespace unisono {

/// How many letters have to be put in, taken away or replaced to make one text of the other.
/// Source: Levenshtein, Binary codes capable of correcting deletions, insertions and reversals,
/// 1966.
[[nodiscard]] std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace unisono
