#include "unisono/comm/block_sizes.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::comm {

// The hash is FNV-1a over the counts, with its low bit set: never 0.
BlockSizes sizes_of(std::span<const std::int64_t> counts) {
  const bool is_even = std::all_of(
      counts.begin(), counts.end(), [&](std::int64_t count) { return count == counts.front(); });
  std::uint64_t hash = 14695981039346656037U;
  for (const std::int64_t count : counts) {
    hash = (hash ^ static_cast<std::uint64_t>(count)) * 1099511628211U;
  }
  return {.total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
          .fingerprint = is_even ? 0 : hash | 1U};
}

BlockSizes sizes_of(std::span<const Buffer> blocks) {
  std::vector<std::int64_t> counts;
  counts.reserve(blocks.size());
  for (const Buffer& block : blocks) {
    counts.push_back(block.count);
  }
  return sizes_of(counts);
}

}  // namespace unisono::comm
