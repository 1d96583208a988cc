#pragma once

#include <cstdint>

namespace bench {

/// Adds two arrays of `count` elements and stores the sums in both, with the widest vectors of this
/// machine. The arrays must be aligned to 64 bytes.
void add_into_both(float* a, float* b, std::int64_t count);

}  // namespace bench
