#pragma once

#include <span>
#include <string>
#include <string_view>

namespace unisono::launch {

/// "0-2,7" for sorted ranks.
[[nodiscard]] std::string rank_ranges(std::span<const int> ranks, std::string_view separator = ",");

}  // namespace unisono::launch
