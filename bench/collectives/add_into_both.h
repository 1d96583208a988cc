#pragma once

#include <cstdint>

namespace bench {

/// Adds up two arrays of `count` elements into both, with the widest vectors that this machine has.
/// They begin at a multiple of 64 bytes.
void add_into_both(float* a, float* b, std::int64_t count);

}  // namespace bench
