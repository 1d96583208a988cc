#pragma once

#include <cstdint>
#include <vector>

namespace unisono::data {

/// The numbers 0 to n-1 in the order that torch.randperm(n) gives with a CPU generator after
/// manual_seed(seed).
///
/// Compared with torch 2.13 up to n = 214,748,364, the size from which torch shuffles in another
/// way, and so does this; above it only memory sets a limit. Of the seed only the low 32 bits
/// count, as in torch, so negative seeds work too. n is at most 2^48; the result takes 8 bytes a
/// number.
///
/// Throws Error(kInvalidArgument) when n is negative or too large.
[[nodiscard]] std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed);

}  // namespace unisono::data
