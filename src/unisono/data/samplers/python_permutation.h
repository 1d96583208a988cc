#pragma once

#include <cstdint>
#include <vector>

namespace unisono::data {

/// The numbers 0 to n-1 in the order that Python's random.Random(seed).shuffle() gives them.
///
/// Compared with CPython 3.11. Of the seed only the absolute value counts, as there. n is at least
/// 0; the result takes 8 bytes a number.
///
/// Source: Matsumoto and Nishimura's init_by_array(); CPython's Lib/random.py, Random.shuffle() and
/// Random._randbelow_with_getrandbits().
[[nodiscard]] std::vector<std::int64_t> python_permutation(std::int64_t n, std::int64_t seed);

}  // namespace unisono::data
