#pragma once

#include <cstddef>

namespace unisono::pipeline {

/// Ranks, stages and chunks are int, as places in vectors are not.
[[nodiscard]] constexpr std::size_t as_index(int number) noexcept {
  return static_cast<std::size_t>(number);
}

}  // namespace unisono::pipeline
