#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"

namespace unisono::attacks {

/// The elements of a buffer: small integers that are exact in every dtype, like their sums over the
/// ranks. The period is a prime number of elements, so that chunks differ from each other.
using Pattern = std::array<int, 251>;

/// Returns the contribution of a rank in a step of the script. `block` distinguishes the blocks for
/// different ranks.
[[nodiscard]] Pattern pattern_of(int step, int rank, int block = 0);

/// Returns the reduction of the ranks' patterns.
[[nodiscard]] Pattern combined_pattern(int step, int world_size, ReduceKind kind);

/// `first` is the index of the buffer's first element in the pattern.
void fill(const Buffer& buffer, const Pattern& pattern, std::int64_t first = 0);
[[nodiscard]] bool holds(const Buffer& buffer, const Pattern& pattern, std::int64_t first = 0);

/// Returns `count` elements from `first` on.
[[nodiscard]] Buffer part_of(const Buffer& buffer, std::int64_t first, std::int64_t count);

}  // namespace unisono::attacks
