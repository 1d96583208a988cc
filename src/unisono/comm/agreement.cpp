#include "unisono/comm/agreement.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/comm/options.h"

namespace unisono::comm {
namespace {

// FNV-1a with the low bit set: never 0.
template <class Values>
std::uint64_t hash_of(const Values& values) {
  std::uint64_t hash = 14695981039346656037U;
  for (const auto value : values) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
  }
  return hash | 1U;
}

}  // namespace

BlockSizes sizes_of(std::span<const std::int64_t> counts) {
  const bool is_even = std::all_of(
      counts.begin(), counts.end(), [&](std::int64_t count) { return count == counts.front(); });
  return {.total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
          .fingerprint = is_even ? 0 : hash_of(counts)};
}

BlockSizes sizes_of(std::span<const Buffer> blocks) {
  std::vector<std::int64_t> counts;
  counts.reserve(blocks.size());
  for (const Buffer& block : blocks) {
    counts.push_back(block.count);
  }
  return sizes_of(counts);
}

std::uint64_t fingerprint_of(const ReduceOp& op) {
  switch (op.kind) {
    case ReduceKind::kPremulSum:
      return std::bit_cast<std::uint64_t>(op.factor);
    case ReduceKind::kUser:
      return op.user == nullptr ? 0 : hash_of(op.user->name);
    default:
      return 0;
  }
}

}  // namespace unisono::comm
