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

std::vector<std::int64_t> counts_of(std::span<const Buffer> buffers) {
  std::vector<std::int64_t> counts;
  counts.reserve(buffers.size());
  for (const Buffer& buffer : buffers) {
    counts.push_back(buffer.count);
  }
  return counts;
}

}  // namespace

BlockSizes sizes_of(std::span<const std::int64_t> counts) {
  const bool is_even = std::all_of(
      counts.begin(), counts.end(), [&](std::int64_t count) { return count == counts.front(); });
  return {.total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
          .fingerprint = is_even ? 0 : hash_of(counts)};
}

BlockSizes sizes_of(std::span<const Buffer> blocks) {
  return sizes_of(counts_of(blocks));
}

std::uint64_t fingerprint_of(std::span<const Buffer> buffers) {
  return hash_of(counts_of(buffers));
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
