#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/base/reduce_kind.h"

namespace unisono::attacks {

/// The elements of a buffer: small whole numbers, exact in every dtype, as are their sums over the
/// ranks. They repeat after a prime number of elements, so that no chunk passes for another.
using Pattern = std::array<int, 251>;

/// What a rank gives in a step of the script. `block` tells apart what it gives to each rank.
[[nodiscard]] Pattern pattern_of(int step, int rank, int block = 0);

/// What a reduction of the ranks' patterns comes to.
[[nodiscard]] Pattern combined_pattern(int step, int world_size, ReduceKind kind);

/// `first` is the place of the buffer's first element in the pattern.
void fill(const Buffer& buffer, const Pattern& pattern, std::int64_t first = 0);
[[nodiscard]] bool holds(const Buffer& buffer, const Pattern& pattern, std::int64_t first = 0);

/// Elements from `first` on.
[[nodiscard]] Buffer part_of(const Buffer& buffer, std::int64_t first, std::int64_t count);

}  // namespace unisono::attacks
